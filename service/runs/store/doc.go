// Package store has all SQL on the schema cleanupd: runs with their tasks and events, the ledger, the schedule, holds,
// and what guards compare with. Only the packages audit and userdata write tables of their own there.
//
// Its functions take the connection, pool or transaction to use, so that the caller decides what is atomic. What a
// worker writes is fenced by the epoch in which it claimed its run. The other packages of service/runs call it.
package store
