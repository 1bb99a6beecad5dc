// Package rules defines what a task is, and compiles its rules to SQL.
//
// A Task (task.go) is data: steps on tables, and rules made of parts, such as the comparison of a date with a cutoff
// (part.go, part_date.go and their neighbours). It becomes statements in two stages:
//
//  1. Compile (compile.go) makes a Plan of it for a database: jobs, one for each relation, with notes on the parts
//     that are left out, and the rights that are missing. It queries nothing but the catalog that it is given, and the
//     plan is never changed. That no row may be on hold is a part of its conditions (holds.go says what is on hold,
//     hold_sql.go how such rows are recognized).
//  2. A Binder (bind.go) puts in what is known only when the task runs: the parents that were chosen, the ids that
//     other tasks found, and the rows on hold. The result is a purge.Sweep, whose condition is the whole rule.
//
// Candidates (candidates.go) are jobs in the order of a run, so that each row is counted once. Runs, dry runs, guards,
// forecasts and explanations all take this way.
package rules
