// Package runs keeps the state of runs in the database that is cleaned, in a schema of the service's own: what was
// requested, which replica holds a run, its exact account, and its event log. Any number of replicas can start,
// execute, watch and cancel any run; they hold no state of their own.
//
// A run has an epoch and a lease. A replica that claims it begins a new epoch and renews the lease as long as it
// works; everything it writes is written only while the epoch is still its own. So a replica that falls silent
// loses the run to another, and does no harm when it wakes up. A replica that loses its own connection claims its run
// again (retake.go).
package runs
