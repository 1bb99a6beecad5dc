// Package eventlog lets any number of callers watch the events of runs: past ones first, then new ones. It reads the
// log of a run once for all its watchers on a replica, and needs package store and a connection that listens for
// notifications. Manager uses it.
package eventlog
