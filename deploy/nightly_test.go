package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// The pod of the CronJob has no more rights than that of the Deployment, and never two run at once.
func TestCronJob(t *testing.T) {
	t.Parallel()
	job := manifest[batchv1.CronJob](t, "cronjob/cronjob.yaml")
	template := job.Spec.JobTemplate.Spec.Template
	server, c := pod(t)
	own := template.Spec.Containers[0]
	for what, is := range map[string]bool{
		"one at a time":       job.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent,
		"each run once":       *job.Spec.JobTemplate.Spec.BackoffLimit == 0 && template.Spec.RestartPolicy == "Never",
		"the pod's rights":    reflect.DeepEqual(template.Spec.SecurityContext, server.Spec.SecurityContext),
		"the program's":       reflect.DeepEqual(own.SecurityContext, c.SecurityContext),
		"its memory":          reflect.DeepEqual(own.Resources, c.Resources),
		"no token":            !*template.Spec.AutomountServiceAccountToken,
		"no variables":        !*template.Spec.EnableServiceLinks,
		"time to stop":        *template.Spec.TerminationGracePeriodSeconds > 2*int64(stopping/time.Second),
		"the database's CA":   reflect.DeepEqual(template.Spec.Volumes[0], server.Spec.Volumes[2]),
		"where the URL says":  own.VolumeMounts[0].MountPath == c.VolumeMounts[2].MountPath,
		"the same secret":     own.Env[0].ValueFrom.SecretKeyRef.Name == c.Env[0].ValueFrom.SecretKeyRef.Name,
		"the image's command": len(own.Command) == 0,
	} {
		if !is {
			t.Errorf("not so: %s", what)
		}
	}
	k := manifest[kustomization](t, "cronjob/kustomization.yaml")
	if !slices.Equal(k.Resources, []string{"cronjob.yaml"}) || k.Images[0].Name != own.Image {
		t.Errorf("%+v", k)
	}
}

// The commands of the CronJob and of the unit clean a database, which needs no server.
func nightlyRuns(t *testing.T, program string) {
	own := manifest[batchv1.CronJob](t, "cronjob/cronjob.yaml").Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	options, err := unit.DeserializeOptions(strings.NewReader(read(t, "cleanupd-run.service")))
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for _, o := range options {
		set[o.Name] = o.Value
	}
	if set["Type"] != "oneshot" || set["DynamicUser"] != "yes" || set["NoNewPrivileges"] != "yes" {
		t.Errorf("the unit is %v", set)
	}
	command := strings.Fields(set["ExecStart"])
	for what, args := range map[string][]string{"CronJob": own.Args, "unit": command[1:]} {
		db := pgtest.Campaign(t)
		db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('a', now() - '1 day'::interval)")
		args = slices.Clone(args)
		for i, arg := range args {
			args[i] = strings.NewReplacer("$(DATABASE_URL)", db.URL(), "${DATABASE_URL}", db.URL()).Replace(arg)
		}
		if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil ||
			db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
}

// systemd accepts the timer and its unit.
func nightlyBySystemd(t *testing.T, program string) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil && os.Getenv("CI") == "" {
		t.Skip("systemd does not judge the units here: ", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"cleanupd-run.service", "cleanupd-run.timer"} {
		text := strings.ReplaceAll(read(t, name), "/usr/local/bin/cleanupd", program)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
		filepath.Join(dir, "cleanupd-run.timer"), filepath.Join(dir, "cleanupd-run.service")).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
