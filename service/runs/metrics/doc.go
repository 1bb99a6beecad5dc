// Package metrics has the Prometheus metrics of runs: what this replica did, what the database says about all
// replicas, and the pools of connections. It uses package store. Workers update the first kind, and Manager
// registers all of them.
package metrics
