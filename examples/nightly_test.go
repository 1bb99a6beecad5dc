package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The crontab runs the script as cron does, with its variables and no others, and prints something only if that fails.
func TestCron(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "command -v curl && command -v jq").
		CombinedOutput(); err != nil {
		missing(t, "curl or jq: %v\n%s", err, out)
	}
	db := audited(t)
	s := serveWithToken(t, build(t), db, "open sesame")
	script, err := filepath.Abs("shell/cleanup.sh")
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	installed := strings.NewReplacer("/usr/local/bin/cleanup.sh", script, "/etc/cleanupd/cron.token", token,
		"https://cleanupd.example.com", s.http, "/etc/cleanupd/ca.crt", s.ca).
		Replace(read(t, "cron/cleanupd"))
	var env, job []string
	for line := range strings.Lines(installed) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case regexp.MustCompile(`^\w+=`).MatchString(line):
			env = append(env, line)
		default:
			job = regexp.MustCompile(`^((?:\S+ ){5})(\w+) ([^%]+)$`).FindStringSubmatch(line)
		}
	}
	if job == nil || job[2] != "cleanupd" {
		t.Fatalf("no line for cron in\n%s", installed)
	}
	if _, err := cron.ParseStandard(strings.TrimSpace(job[1])); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		token    string
		succeeds bool
	}{{"open sesame", true}, {"wrong", false}} {
		if err := os.WriteFile(token, []byte(test.token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", job[3])
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if (err == nil) != test.succeeds || (len(out) == 0) != test.succeeds ||
			(!test.succeeds && !strings.Contains(string(out), "not valid")) {
			t.Errorf("with the token %q: %v\n%s", test.token, err, out)
		}
	}
	if n := db.Int("SELECT count(*) FROM XtkAudit"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A manifest may have no fields that its type does not know.
func decode[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return out
}

// The CronJob's pod is a restricted one, reaches the service of deploy/kubernetes, and runs the cleanup with its
// arguments.
func TestCronJob(t *testing.T) {
	t.Parallel()
	text := read(t, "kubernetes/cronjob.yaml")
	first, second, _ := strings.Cut(text, "\n---\n")
	namespace, job := decode[corev1.Namespace](t, first), decode[batchv1.CronJob](t, second)
	pod := job.Spec.JobTemplate.Spec.Template
	c := pod.Spec.Containers[0]
	if job.Kind != "CronJob" || job.Namespace != namespace.Name ||
		job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent ||
		*job.Spec.JobTemplate.Spec.BackoffLimit != 0 ||
		*pod.Spec.AutomountServiceAccountToken {
		t.Errorf("%+v", job)
	}
	if _, err := cron.ParseStandard("CRON_TZ=" + *job.Spec.TimeZone + " " + job.Spec.Schedule); err != nil {
		t.Error(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{
		Level:   api.Level(namespace.Labels[api.EnforceLevelLabel]),
		Version: api.LatestVersion(),
	}
	if verdict := policy.AggregateCheckResults(
		evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec),
	); restricted.Level != api.LevelRestricted ||
		!verdict.Allowed {
		t.Errorf("%s: %s", restricted, verdict.ForbiddenDetail())
	}

	service, home := decode[corev1.Service](t, read(t, "../deploy/kubernetes/service.yaml")), decode[corev1.Namespace](
		t, read(t, "../deploy/kubernetes/namespace.yaml"))
	address := service.Name + "." + home.Name + ".svc:9090"
	if !slices.ContainsFunc(
		service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "grpc" && p.Port == 9090 },
	) {
		t.Errorf("%s does not serve gRPC", address)
	}
	lets := func(from networkingv1.NetworkPolicyPeer) bool {
		selector, err := metav1.LabelSelectorAsSelector(from.NamespaceSelector)
		return err == nil && from.PodSelector == nil && selector.Matches(labels.Set(namespace.Labels))
	}
	if rules := decode[networkingv1.NetworkPolicy](
		t, read(t, "../deploy/kubernetes/networkpolicy.yaml"),
	).Spec.Ingress; !slices.ContainsFunc(
		rules, func(r networkingv1.NetworkPolicyIngressRule) bool { return slices.ContainsFunc(r.From, lets) },
	) {
		t.Errorf("the policy of %s does not let the job in", home.Name)
	}

	token, ca := c.Env[0], pod.Spec.Volumes[0].Secret
	file := filepath.Join(c.VolumeMounts[0].MountPath, ca.Items[0].Path)
	for _, needs := range []string{
		"create secret generic " + ca.SecretName + " ",
		"--from-literal=" + token.ValueFrom.SecretKeyRef.Key + "=",
		"--from-file=" + ca.Items[0].Key + "\n",
	} {
		if !strings.Contains(first, needs) {
			t.Errorf("the secret is not made with %q", needs)
		}
	}
	db, program := audited(t), build(t)
	s := serveWithToken(t, program, db, "open sesame")
	args := slices.Clone(c.Args)
	for value, actual := range map[string]string{address: s.grpc, file: s.ca} {
		i := slices.Index(args, value)
		if i < 0 {
			t.Fatalf("%q are without %s", args, value)
		}
		args[i] = actual
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), token.Name+"=open sesame")
	if out, err := cmd.CombinedOutput(); err != nil ||
		!regexp.MustCompile(`audit-trail +succeeded, 30 rows deleted`).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}
