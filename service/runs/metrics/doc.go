// Package metrics has the Prometheus metrics of runs: what this replica did, what the database has about all replicas,
// and the pools of connections. It needs package store. Workers update the first, and Manager registers all of them.
package metrics
