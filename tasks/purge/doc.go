// Package purge is the engine that deletes rows from a table: in bounded batches, one transaction each, without
// holding the table in memory or scanning it twice.
//
// A sweep visits the heap once, in windows of blocks (TID ranges), whatever indexes there are; or, where the planner
// would use an index, only the rows that it finds, in TID order. A statement touches a limited number of rows: its
// window is narrow enough, or it is repeated until it touches fewer, so that no row is skipped and the whole table is
// never searched again. The statement carries the whole condition itself: a row that the application changes in between
// is judged as it then is.
//
// purge knows nothing of runs. Its caller provides the function that commits a batch, which may write its own account
// in the batch's transaction.
package purge
