// Package runs starts, lists, watches, cancels and executes runs, and keeps what belongs to them: the schedule, holds
// and guards. All of it is stored in the database that is cleaned, in a schema of the service's own, so that any
// replica can do anything with any run; replicas are stateless.
//
// Manager ties the packages below together, and package service calls it. A worker claims a run for a lease, in an
// epoch of the run, which fences everything it writes: a replica that no longer renews its lease loses its runs to
// others, and does no harm when it wakes up.
package runs
