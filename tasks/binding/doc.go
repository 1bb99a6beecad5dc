// Package binding completes a compiled task with what is known only when it runs: the parents of the task, the
// parameters of a job's sweep, and the rows on hold that the sweep must not find. Runs, dry runs, guards and
// explanations bind compiled tasks in the same way.
package binding
