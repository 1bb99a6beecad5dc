// Package purge is the engine that takes rows out of a table: in bounded batches, a transaction each, without
// holding the table in memory and without walking it twice.
//
// A sweep visits the heap once, in windows of blocks (TID ranges), whatever indexes there are; or, where the planner
// would use an index, only the rows that it finds, in the order of their places. At most so many rows go per statement:
// its window is chosen so, or repeated until fewer went, so that no row is passed over and none is looked for twice in
// the whole table. The deleting statement carries the whole condition itself: a row that
// the application changes in between is judged again as it is then.
//
// purge knows nothing of runs. It is given a function that commits a batch, which may write its own account in
// the batch's transaction.
package purge
