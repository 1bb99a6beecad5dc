// Package throttle makes batches wait while the server's load exceeds limits: the lag of standbys, active and waiting
// sessions, the rate of WAL, WAL that the server cannot remove, and the rate of rows. It needs a connection pool to
// sample the load. Package purge calls it before each batch. At the gentle pace it also says how long batches should
// take.
package throttle
