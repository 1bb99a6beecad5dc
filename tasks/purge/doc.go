// Package purge is the engine that deletes or updates rows of a table: in bounded batches, one transaction each,
// without keeping the table in memory or scanning it twice.
//
// A sweep visits the heap once, in windows of blocks (TID ranges), whether or not there are indexes; or, if the planner
// would use an index, only the rows that it finds, in TID order. Rows that are not among the newest of their group are
// found and visited group by group. Rows on another server are visited by an integer key. A statement touches a limited
// number of rows: its window is narrow enough, or it is repeated until it touches fewer, so that no row is skipped and
// the table is never searched again. The statement has the whole condition: a row that the application changes in
// between is judged by its new state. The statements are in ../testdata/statements.sql, in full.
//
// purge has no notion of runs. Package rules compiles sweeps, and package cleanup runs or counts them. The caller
// provides the Ledger that counts a batch in its transaction, and the Bounds that a batch must not exceed. Package pace
// sizes batches, and package throttle makes them wait.
package purge
