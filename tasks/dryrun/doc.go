// Package dryrun counts what the compiled tasks of a run would do, and changes nothing. A row is counted at the
// first task that would delete it, and each task sees its tables as the tasks before it would have left them. It is
// one of the two executors of package pipeline; package execute is the other.
package dryrun
