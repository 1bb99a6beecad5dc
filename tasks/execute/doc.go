// Package execute deletes the rows that the compiled tasks of a run select, batch by batch, in the order of the
// tasks. It is one of the two executors of package pipeline; package dryrun is the other.
package execute
