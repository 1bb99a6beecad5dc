// Package dashboard tests the files that make Prometheus and Grafana watch cleanupd, with Prometheus' own rules, engine and
// storage: deploy/prometheus/alerts.yaml and deploy/grafana/cleanupd.json. It is a module of its own, so that the service does
// not depend on Prometheus.
package dashboard
