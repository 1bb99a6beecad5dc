// Package eventlog lets any number of callers watch the events of runs: first those of the past, then new ones. A
// replica reads the log of a run only once for all its watchers. It uses package store and a connection that
// listens for notifications. Manager uses it.
package eventlog
