// Package execute deletes what the plans of a run's tasks say, batch by batch, in the order of the plans. It is one of
// the two executors of package pipeline; package dryrun is the other.
package execute
