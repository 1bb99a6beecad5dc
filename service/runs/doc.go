// Package runs starts, lists, watches, cancels and executes runs, and manages the schedule, holds and guards. It
// stores all of that in the database that is cleaned, in the service's own schema. Replicas are therefore
// stateless, and any of them can do anything with any run.
//
// Manager ties the packages below together, and package service calls it. A worker claims a run for the duration of
// a lease. Each claim begins a new epoch of the run, which fences everything that the worker writes: a replica that
// no longer renews its lease loses its runs to others, and does no harm when it wakes up.
package runs
