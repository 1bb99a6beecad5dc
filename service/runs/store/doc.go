// Package store has all SQL on the schema cleanupd: runs with their tasks and events, the ledger, the schedule,
// holds, and the data that guards compare with. Only the packages audit, growth and userdata also have tables
// there.
//
// Its functions take the connection, pool or transaction to use, so that the caller decides which writes are
// atomic. What a worker writes is fenced by the epoch in which it claimed its run. The other packages of
// service/runs call this package.
package store
