// Package store has all SQL on the schema cleanupd: runs with their tasks and events, the ledger, the schedule, holds,
// and what guards compare with. Only the packages audit, growth and userdata also have tables there.
//
// Its functions take the connection, pool or transaction to use, so that the caller decides which writes are atomic.
// Writes of a worker are fenced by the epoch in which it claimed its run. The other packages of service/runs call it.
package store
