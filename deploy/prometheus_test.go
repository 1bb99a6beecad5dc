package deploy_test

import (
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
	if out, err := exec.CommandContext(t.Context(), "kubectl", "version", "--client").CombinedOutput(); err != nil {
		t.Skipf("there is no kubectl: %v %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "kubectl", "kustomize", "kubernetes").CombinedOutput()
	if err != nil || strings.Contains(string(out), "ServiceMonitor") ||
		!strings.Contains(string(out), "kind: Deployment") {
		t.Errorf("%v %s", err, out)
	}
	dir := t.TempDir()
	copied := exec.CommandContext(t.Context(), "sh",
		"-ec", `cp -R kubernetes/. "$1"; sed -i 's/^# components:/components:/' "$1/kustomization.yaml"; kubectl `+
			`kustomize "$1"`,
		"sh", dir)
	if out, err := copied.CombinedOutput(); err != nil || !strings.Contains(string(out), "kind: ServiceMonitor") ||
		!strings.Contains(string(out), "kind: PrometheusRule") {
		t.Errorf("with the component: %v %s", err, out)
	}
}
