// Package plan defines what a task is, and compiles it for a database: from the task's rules and the database's
// catalog, options and holds to jobs, with notes on the parts that are left out, and the missing rights. Compiling
// reads nothing, and a plan is never changed.
//
// Rules are made of parts (part*.go), such as the comparison of a date with a cutoff (part_date.go).
package plan
