// Package worker claims runs and executes them. It renews the lease of a run while it works, writes the exact counts in
// the transactions that delete, and claims the run again after an interruption. It needs packages store, scheduler and
// instance, and the executors of package tasks. Manager starts one worker on each replica, which executes any number of
// runs.
package worker
