package deploy_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// The fields of a ServiceMonitor that are used.
type monitor struct {
	Kind string
	Spec struct {
		Selector  struct{ MatchLabels map[string]string }
		Endpoints []struct {
			Port, Scheme  string
			Authorization struct {
				Credentials corev1.SecretKeySelector
			}
			TLSConfig struct {
				ServerName string
				CA         struct{ Secret corev1.SecretKeySelector }
			}
		}
	}
}

// The Prometheus Operator finds the Service by its labels and port, has a token that the server knows as a viewer's,
// and the alerts of those who have no operator. Only where it runs is any of it applied.
func TestPrometheusOperator(t *testing.T) {
	t.Parallel()
	var m monitor
	if err := yaml.Unmarshal([]byte(read(t, "kubernetes/prometheus-operator/servicemonitor.yaml")), &m); err != nil {
		t.Fatal(err)
	}
	service, examples := manifest[corev1.Service](t, "service.yaml"), secrets(t)
	namespace := manifest[corev1.Namespace](t, "namespace.yaml").Name
	e := m.Spec.Endpoints[0]
	token, ca := e.Authorization.Credentials, e.TLSConfig.CA.Secret
	for what, is := range map[string]bool{
		"its kind": m.Kind == "ServiceMonitor",
		"the labels of the Service": len(m.Spec.Selector.MatchLabels) > 0 && reflect.DeepEqual(
			m.Spec.Selector.MatchLabels, service.Labels),
		"a port of the Service": slices.ContainsFunc(service.Spec.Ports,
			func(p corev1.ServicePort) bool { return p.Name == e.Port }),
		"encrypted":              e.Scheme == "https" && e.TLSConfig.ServerName == service.Name+"."+namespace+".svc",
		"a token in the example": examples[token.Name].StringData[token.Key] != "",
		"the authority":          examples[ca.Name].StringData[ca.Key] != "",
		"a viewer's line":        strings.Contains(examples["cleanupd-access"].StringData["tokens"], "\nviewer prometheus "),
	} {
		if !is {
			t.Errorf("not so: %s", what)
		}
	}
	var alerts, rule struct {
		Kind   string
		Groups any
		Spec   struct{ Groups any }
	}
	if err := yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yaml")), &alerts); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(read(t, "kubernetes/prometheus-operator/prometheusrule.yaml")), &rule); err != nil {
		t.Fatal(err)
	}
	if rule.Kind != "PrometheusRule" || alerts.Groups == nil || !reflect.DeepEqual(alerts.Groups, rule.Spec.Groups) {
		t.Error("the rule has other alerts than prometheus/alerts.yaml; make generate writes it")
	}
}

// What is applied, with the component and without.
func TestKustomizeBuilds(t *testing.T) {
	t.Parallel()
	if out, err := kustomize("kubernetes"); err != nil || strings.Contains(out, "ServiceMonitor") ||
		!strings.Contains(out, "kind: Deployment") {
		t.Errorf("%v %s", err, out)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("kubernetes")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kustomization.yaml")
	text := strings.ReplaceAll(read(t, file), "\n# components:", "\ncomponents:")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := kustomize(dir); err != nil || !strings.Contains(out, "kind: ServiceMonitor") ||
		!strings.Contains(out, "kind: PrometheusRule") {
		t.Errorf("with the component: %v %s", err, out)
	}
}

// kustomize does what kubectl kustomize does, of which Debian has a version that knows no components.
func kustomize(dir string) (string, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", err
	}
	text, err := built.AsYaml()
	return string(text), err
}
