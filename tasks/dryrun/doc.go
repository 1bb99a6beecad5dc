// Package dryrun answers what the plans of a run's tasks would do, and changes nothing. A row counts at the first task
// that would delete it, and each task sees its tables as the tasks before it would have left them. It is one of the two
// executors of package pipeline; package execute is the other.
package dryrun
