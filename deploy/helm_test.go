package deploy_test

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// render returns the objects of the chart by the names of their files, without those that are empty.
func render(values map[string]any) (map[string]string, error) {
	chart, err := loader.LoadDir("helm")
	if err != nil {
		return nil, err
	}
	filled, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "cleanupd", Namespace: "cleanupd"}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, filled)
	objects := map[string]string{}
	for name, text := range files {
		if strings.TrimSpace(text) != "" {
			objects[path.Base(name)] = text
		}
	}
	return objects, err
}

func rendered(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	objects, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func same(t *testing.T, name, got, want string) {
	t.Helper()
	var texts [2]string
	for i, text := range []string{got, want} {
		out, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, text)
		}
		texts[i] = string(out)
	}
	if texts[0] != texts[1] {
		t.Errorf("the chart's %s is\n%s\nand the kustomization's\n%s", name, texts[0], texts[1])
	}
}

// With its default values the chart is what the kustomization is, but for the namespace, which helm makes.
func TestChartIsTheKustomization(t *testing.T) {
	t.Parallel()
	objects := rendered(t, nil)
	want := manifest[kustomization](t, "kustomization.yaml").Resources
	want = slices.DeleteFunc(want, func(name string) bool { return name == "namespace.yaml" })
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Errorf("the chart has %q, want %q", got, want)
	}
	for _, name := range want {
		text := strings.ReplaceAll(read(t, "kubernetes/"+name), "image: cleanupd #",
			"image: registry.example/cleanupd:1.0.0\n          imagePullPolicy: IfNotPresent #")
		same(t, name, objects[name], text)
	}
}

// What can be set has its effect, and nothing else can be set.
func TestChartValues(t *testing.T) {
	t.Parallel()
	objects := rendered(t, map[string]any{
		"replicas": 1, "instance": "shop", "networkPolicy": map[string]any{"enabled": false},
		"image":    map[string]any{"tag": "1.2.3"},
		"secrets":  map[string]any{"database": "mine"},
		"settings": map[string]any{"schedule": true, "pace": "gentle", "mid-sourcing": []any{"a=keep"}},
	})
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, []string{
		"configmap.yaml", "deployment.yaml", "service.yaml", "serviceaccount.yaml",
	}) {
		t.Errorf("the objects are %q", got)
	}
	d := decode[appsv1.Deployment](t, objects["deployment.yaml"])
	c := d.Spec.Template.Spec.Containers[0]
	volumes := d.Spec.Template.Spec.Volumes
	settings := decode[corev1.ConfigMap](t, objects["configmap.yaml"])
	mount := c.VolumeMounts[len(c.VolumeMounts)-1]
	for what, is := range map[string]bool{
		"replicas":  *d.Spec.Replicas == 1,
		"image":     c.Image == "registry.example/cleanupd:1.2.3",
		"instance":  c.Env[1].Value == "shop",
		"secret":    c.Env[0].ValueFrom.SecretKeyRef.Name == "mine" && volumes[2].Secret.SecretName == "mine",
		"arguments": slices.Equal(c.Args, []string{"serve", "--config=" + mount.MountPath + "/cleanupd.yaml"}),
		"settings":  volumes[3].ConfigMap.Name == settings.Name && volumes[3].Name == mount.Name,
		"in a file": settings.Data["cleanupd.yaml"] == "mid-sourcing:\n- a=keep\npace: gentle\nschedule: true\n",
		"restart":   len(d.Spec.Template.Annotations) == 1,
	} {
		if !is {
			t.Errorf("not so: %s", what)
		}
	}
	for name, wrong := range map[string]map[string]any{
		"an unknown value": {"replica": 2},
		"no replica":       {"replicas": 0},
		"no instance":      {"instance": ""},
		"no setting":       {"settings": map[string]any{"Max Wait": "1m"}},
		"no address":       {"networkPolicy": map[string]any{"enabled": true, "database": map[string]any{"cidr": "db"}}},
	} {
		if _, err := render(wrong); err == nil || !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChartIsLinted(t *testing.T) {
	t.Parallel()
	for _, m := range lint.RunAll("helm", nil, "cleanupd").Messages {
		if !strings.Contains(m.Error(), "icon is recommended") {
			t.Error(m)
		}
	}
}

// The file of the chart's settings is one that the program takes.
func chartSettings(t *testing.T, program string) {
	objects := rendered(t, map[string]any{
		"settings": map[string]any{"workers": 99, "mid-sourcing": []any{"x"}, "schedule": true},
	})
	file := filepath.Join(t.TempDir(), "cleanupd.yaml")
	text := decode[corev1.ConfigMap](t, objects["configmap.yaml"]).Data["cleanupd.yaml"]
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "serve", "--config", file, "--database-url", "postgres://h/d").
		CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err == nil || len(lines) != 2 || !strings.Contains(string(out), "--workers must be 1 to 16, not 99") ||
		!strings.Contains(string(out), "--mid-sourcing must be NAME=URL") {
		t.Errorf("%v: %s", err, out)
	}
}
