// Package rules defines what a task is, and compiles its rules to SQL.
//
// A Task (task.go) is data: steps on tables, and rules made of parts, such as the comparison of a date with a cutoff
// (part.go, part_date.go and their neighbours). It becomes statements in two stages:
//
//  1. Compile (compile.go) turns it into a Plan for a database: a job for each relation, notes on the parts that are
//     left out, and the missing rights. It queries nothing, but uses the catalog and options in Env. A job keeps the
//     conditions of rows on hold apart from those of its rule (holds.go defines what is on hold, hold_sql.go how to
//     recognize such rows).
//  2. A Binder (bind.go) fills in what is known only when the task runs: the chosen parents, the ids that other tasks
//     found, and the rows on hold. The result is a purge.Sweep whose condition is the whole rule.
//
// JobRows (job_rows.go) are rows of jobs, in the order of a run, each counted once. Runs, dry runs, guards,
// forecasts and explanations all use these stages.
package rules
