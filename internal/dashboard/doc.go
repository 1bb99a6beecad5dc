// Package dashboard tests the files by which Prometheus and Grafana monitor cleanupd, with Prometheus' own rules,
// engine and storage: deploy/prometheus/alerts.yaml and deploy/grafana/cleanupd.json. It is a separate module, so that
// the service does not depend on Prometheus.
package dashboard
