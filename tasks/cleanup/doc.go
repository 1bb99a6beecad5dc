// Package cleanup executes the tasks of a run one after another, or counts what they would do for a dry run.
//
// # The life of a run
//
// A worker calls Execute, or DryRun. Both make a Run (run.go) and an Executor: one deletes (execute.go), one counts
// (dry_run.go). Everything else is the same for both, so that a dry run meets the problems that the run will meet.
//
//  1. Run.Begin reads the catalog, the options and the holds, and checks what concerns the whole run: rights, clocks,
//     and the guards of a first run and of an idle application.
//  2. Run.Tasks takes the tasks of the run in their order. Each try of a task is an Attempt: it reads again what may
//     have changed (holds, policies, tables), compiles the task by package rules, compares it with the saved plan, and
//     chooses the parents.
//  3. The Executor does the attempt: rows of jobs, then what is rolled up (rollup.go), work tables (worktables.go,
//     drop.go, lists.go), and VACUUM (vacuum.go). Before it changes anything, guards judge the task by figures that are
//     read when a guard needs them (figures.go).
//  4. What is retained, and why, is counted (retained.go) and becomes a part of the Outcome.
//
// The Run reports to a Journal (journal.go), which also controls it. This package does not know where it is stored.
//
// # The life of a batch
//
// executedTask.sweepAll takes the jobs, dependent rows before their parents. rules.Binder.Sweep puts the parents, the
// values and the condition that a row is not on hold into the job's sweep, and purge.Engine.Sweep deletes its rows in
// batches. Each is one transaction: the DELETE with the whole condition, a check that the tables are still those for
// which the task was compiled, and the counts. Two more can refuse the commit (purge.Engine.Commit): the bounds
// (bounds.go), if more would be deleted than the saved plan or a guard allows, and the Journal, if the worker no longer
// has the run, if a hold was created, or if the policy was changed.
//
// If the connection is lost, so is the batch with its counts, and all connections are opened anew: the run goes on in a
// new epoch (service/runs/worker.go) from the counts and the cursor that the last commit stored.
//
// # The life of a count
//
// A row counts at the first job that would delete it. For example, an old log of a deleted delivery is deleted by the
// task deliveries, and so delivery-logs must not count it again. count.go asks which jobs of the whole run have rows
// of a relation (rules.JobRows: their conditions in the order of the tasks, and which of them hide rows from
// later ones), reads the relation once for all of them (purge.Engine.CountCandidates), and keeps the tallies for the
// tasks that follow. Where the rule of a later task reads rows of other tables, its compiled conditions leave out those
// that earlier tasks would have deleted (rules.DryRun).
package cleanup
