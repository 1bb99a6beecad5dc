// Package dashboard tests the files with which Prometheus and Grafana monitor cleanupd:
// deploy/prometheus/alerts.yaml and deploy/grafana/cleanupd.json. It runs them with the rules, engine and storage of
// Prometheus. It is a separate module, so that the service does not depend on Prometheus.
package dashboard
