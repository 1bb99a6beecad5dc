// Package runs keeps a run's life in the database that is cleaned, in a schema of the service's own: what was
// asked for, which replica holds it, its exact account, and the log of its events. Any number of replicas start,
// work, watch and cancel any run, and hold no state of their own.
//
// A run carries an epoch and a lease. A replica that claims it raises the epoch and renews the lease as long as it
// works; everything it writes is written only while the epoch is still its own. So a replica that fell silent
// loses the run to another, and does no harm when it wakes up.
package runs
