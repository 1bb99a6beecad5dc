// Package worker claims runs and executes them. It renews the lease of a run while it works, writes the exact
// counts in the transactions that delete, and claims the run again after an interruption. It uses the packages
// store, scheduler and instance, and the executors of package tasks. Each replica has one worker, which Manager
// starts and which can execute several runs at a time.
package worker
