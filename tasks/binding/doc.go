// Package binding completes a compiled plan with everything that is only known when it runs: the parents of a task, the
// parameters of a job's sweep, and the rows on hold that the sweep must not find. Runs, dry runs, guards and
// explanations bind the same plans in the same way.
package binding
