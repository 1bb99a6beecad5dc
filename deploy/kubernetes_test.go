package deploy_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/testca"
)

// A manifest may have no fields that its type does not know.
func decode[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return out
}

func manifest[T any](t *testing.T, name string) T {
	t.Helper()
	return decode[T](t, read(t, "kubernetes/"+name))
}

type kustomization struct {
	APIVersion, Kind, Namespace string
	Images                      []struct{ Name, NewName, NewTag string }
	Resources                   []string
}

func pod(t *testing.T) (corev1.PodTemplateSpec, corev1.Container) {
	t.Helper()
	template := manifest[appsv1.Deployment](t, "deployment.yaml").Spec.Template
	if len(template.Spec.Containers) != 1 {
		t.Fatal("the pod has not one container")
	}
	return template, template.Spec.Containers[0]
}

func secrets(t *testing.T) map[string]corev1.Secret {
	t.Helper()
	found := map[string]corev1.Secret{}
	for document := range strings.SplitSeq(read(t, "kubernetes/secrets.example.yaml"), "\n---\n") {
		s := decode[corev1.Secret](t, document)
		found[s.Name] = s
	}
	return found
}

// All manifests are valid, and all but the example are applied.
func TestKustomization(t *testing.T) {
	t.Parallel()
	k := manifest[kustomization](t, "kustomization.yaml")
	for name, kind := range map[string]string{
		"namespace.yaml":           manifest[corev1.Namespace](t, "namespace.yaml").Kind,
		"serviceaccount.yaml":      manifest[corev1.ServiceAccount](t, "serviceaccount.yaml").Kind,
		"deployment.yaml":          manifest[appsv1.Deployment](t, "deployment.yaml").Kind,
		"service.yaml":             manifest[corev1.Service](t, "service.yaml").Kind,
		"poddisruptionbudget.yaml": manifest[policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml").Kind,
		"networkpolicy.yaml":       manifest[networkingv1.NetworkPolicy](t, "networkpolicy.yaml").Kind,
	} {
		if strings.ToLower(kind)+".yaml" != name {
			t.Errorf("%s holds a %s", name, kind)
		}
	}
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := path.Base(file)
		if applied := slices.Contains(
			k.Resources, name,
		); applied != (name != "kustomization.yaml" && name != "secrets.example.yaml") {
			t.Errorf("%s is applied: %t", name, applied)
		}
	}
	_, c := pod(t)
	if k.Kind != "Kustomization" || len(k.Images) != 1 || k.Images[0].Name != c.Image ||
		!regexp.MustCompile(`^\d`).MatchString(k.Images[0].NewTag) {
		t.Errorf("the image %q is %+v", c.Image, k.Images)
	}
	if k.Namespace != manifest[corev1.Namespace](t, "namespace.yaml").Name {
		t.Errorf("namespace %q is not made", k.Namespace)
	}
}

func TestPodIsSafe(t *testing.T) {
	t.Parallel()
	d := manifest[appsv1.Deployment](t, "deployment.yaml")
	template, c := pod(t)
	p, s := template.Spec.SecurityContext, c.SecurityContext
	budget := manifest[policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml")
	account := manifest[corev1.ServiceAccount](t, "serviceaccount.yaml")
	_, image := stages(t)
	for what, is := range map[string]bool{
		"two replicas":             *d.Spec.Replicas == 2,
		"one stays":                budget.Spec.MinAvailable.IntValue() == 1,
		"replicas on other nodes":  template.Spec.TopologySpreadConstraints[0].TopologyKey == corev1.LabelHostname,
		"none goes before another": d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() == 0,
		"not root":                 *p.RunAsNonRoot,
		"the image's user": fmt.Sprintf("%d:%d", *p.RunAsUser, *p.RunAsGroup) == only[*instructions.UserCommand](t,
			image).User,
		"system calls":       p.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"no more rights":     !*s.AllowPrivilegeEscalation && s.Privileged == nil,
		"nothing is written": *s.ReadOnlyRootFilesystem,
		"no capabilities": slices.Equal(s.Capabilities.Drop,
			[]corev1.Capability{"ALL"}) && len(s.Capabilities.Add) == 0,
		"no token": !*template.Spec.AutomountServiceAccountToken &&
			!*account.AutomountServiceAccountToken,
		"its account":            template.Spec.ServiceAccountName == account.Name,
		"no variables of others": !*template.Spec.EnableServiceLinks,
		"bounded memory": !c.Resources.Limits.Memory().IsZero() &&
			!c.Resources.Requests.Memory().IsZero() && !c.Resources.Requests.Cpu().IsZero(),
		"time to stop": time.Duration(
			*template.Spec.TerminationGracePeriodSeconds-c.Lifecycle.PreStop.Sleep.Seconds)*time.Second > stopping,
		"the command of the image": len(c.Command) == 0 && slices.Equal(c.Args, []string{"serve"}),
		"the namespace asks for all": manifest[corev1.Namespace](t,
			"namespace.yaml").Labels["pod-security.kubernetes.io/enforce"] == "restricted",
	} {
		if !is {
			t.Errorf("not so: %s", what)
		}
	}
}

// Everything that selects the pods matches their labels, and refers to ports that they have.
func TestPodIsSelected(t *testing.T) {
	t.Parallel()
	d := manifest[appsv1.Deployment](t, "deployment.yaml")
	service := manifest[corev1.Service](t, "service.yaml")
	policy := manifest[networkingv1.NetworkPolicy](t, "networkpolicy.yaml")
	template, c := pod(t)
	for what, labels := range map[string]map[string]string{
		"deployment": d.Spec.Selector.MatchLabels,
		"service":    service.Spec.Selector,
		"policy":     policy.Spec.PodSelector.MatchLabels,
		"budget":     manifest[policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml").Spec.Selector.MatchLabels,
		"spread":     template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		for name, value := range labels {
			if template.Labels[name] != value {
				t.Errorf("%s selects by %s=%s", what, name, value)
			}
		}
		if len(labels) == 0 {
			t.Errorf("%s selects everything", what)
		}
	}
	ports, listens := map[string]int32{}, map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, e := range c.Env {
		listens[e.Name] = e.Value
	}
	if want := (map[string]int32{"grpc": 9090, "https": 8080}); fmt.Sprint(ports) != fmt.Sprint(want) ||
		listens["CLEANUPD_GRPC_LISTEN"] != fmt.Sprintf(
			":%d", ports["grpc"],
		) || listens["CLEANUPD_HTTP_LISTEN"] != fmt.Sprintf(":%d", ports["https"]) {
		t.Errorf("the ports are %v, it listens on %v", ports, listens)
	}
	named := []string{
		c.StartupProbe.HTTPGet.Port.String(), c.LivenessProbe.HTTPGet.Port.String(),
		c.ReadinessProbe.HTTPGet.Port.String(),
	}
	for _, p := range service.Spec.Ports {
		named = append(named, p.TargetPort.String())
	}
	if len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.Ingress) != 2 ||
		len(policy.Spec.Ingress[0].Ports) != len(ports) ||
		len(policy.Spec.Ingress[0].From) == 0 {
		t.Errorf("it is called as %+v says", policy.Spec.Ingress)
	}
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			named = append(named, p.Port.String())
		}
		if len(rule.From) != 1 || len(rule.From[0].NamespaceSelector.MatchLabels) == 0 {
			t.Errorf("anyone may call: %+v", rule)
		}
	}
	for _, name := range named {
		if ports[name] == 0 {
			t.Errorf("there is no port %s", name)
		}
	}
	var out []string
	for _, rule := range policy.Spec.Egress {
		for _, p := range rule.Ports {
			out = append(out, p.Port.String())
		}
	}
	if !slices.Equal(out, []string{"53", "53", "5432"}) {
		t.Errorf("it may call %v", out)
	}
}

// The pod's variables are variables of serve, and every secret that it refers to is in the example.
func podVariables(t *testing.T, known map[string]bool) {
	template, c := pod(t)
	examples := secrets(t)
	for _, e := range c.Env {
		if strings.HasPrefix(e.Name, "CLEANUPD_") && !known[e.Name] {
			t.Errorf("%s is no variable of serve", e.Name)
		}
		if e.ValueFrom != nil &&
			examples[e.ValueFrom.SecretKeyRef.Name].StringData[e.ValueFrom.SecretKeyRef.Key] == "" {
			t.Errorf("%s is of no secret", e.Name)
		}
	}
	mounted := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounted[m.Name] = m.MountPath
	}
	var files []string
	for _, v := range template.Spec.Volumes {
		example := examples[v.Secret.SecretName]
		for key := range example.StringData {
			if len(v.Secret.Items) == 0 || (v.Secret.Items[0].Key == key && v.Secret.Items[0].Path == key) {
				files = append(files, mounted[v.Name]+"/"+key)
			}
		}
	}
	url := examples["cleanupd-database"].StringData["url"]
	named := []string{regexp.MustCompile(`sslrootcert=(\S+)`).FindStringSubmatch(url)[1]}
	for _, e := range c.Env {
		if strings.HasPrefix(e.Value, "/") {
			named = append(named, e.Value)
		}
	}
	slices.Sort(files)
	slices.Sort(named)
	if !slices.Equal(files, named) {
		t.Errorf("the secrets are mounted as %v, named are %v", files, named)
	}
}

// With the variables of the pod, and files like those of the secrets, the program serves on all addresses, answers
// the probes, and admits only callers with the token.
func podServes(t *testing.T, program string) {
	db := pgtest.Campaign(t)
	ca := testca.New(t)
	cert, key := ca.Files(ca.Server())
	tokens := filepath.Join(t.TempDir(), "tokens")
	hash := func(token string) string { return fmt.Sprintf(" %x\n", sha256.Sum256([]byte(token))) }
	text := strings.NewReplacer(" SHA256-OF-TOKEN\n", hash("secret"), " SHA256-OF-ANOTHER-TOKEN\n", hash("another")).
		Replace(secrets(t)["cleanupd-access"].StringData["tokens"] + "\n")
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, c := pod(t)
	here := map[string]string{
		"CLEANUPD_DATABASE_URL": db.URL(),
		"CLEANUPD_TLS_CERT":     cert,
		"CLEANUPD_TLS_KEY":      key,
		"CLEANUPD_TOKEN_FILE":   tokens,
		"CLEANUPD_GRPC_LISTEN":  ":0",
		"CLEANUPD_HTTP_LISTEN":  ":0",
	}
	cmd := exec.CommandContext(t.Context(), program, c.Args...)
	for _, e := range c.Env {
		if value, ok := here[e.Name]; ok {
			e.Value = value
		}
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var port string
	said := &bytes.Buffer{}
	for lines := bufio.NewScanner(io.TeeReader(stderr, said)); port == "" && lines.Scan(); {
		if m := regexp.MustCompile(`msg=serving .*http=\S*:(\d+)`).FindStringSubmatch(lines.Text()); m != nil {
			port = m[1]
		}
	}
	if port == "" {
		t.Fatalf("it does not serve: %s", said)
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}},
	}
	get := func(scheme, path, token string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			strings.ToLower(scheme)+"://127.0.0.1:"+port+path, nil)
		if err != nil {
			return 0, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if status, err := get(string(p.HTTPGet.Scheme), p.HTTPGet.Path, ""); status != http.StatusOK {
			t.Errorf("%s: %d %v", p.HTTPGet.Path, status, err)
		}
	}
	stranger, err1 := get("https", "/v1/options", "")
	caller, err2 := get("https", "/v1/options", "secret")
	if stranger != http.StatusUnauthorized || caller != http.StatusOK {
		t.Errorf("without the token %d, with it %d: %v", stranger, caller, errors.Join(err1, err2))
	}
}
