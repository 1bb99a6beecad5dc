// Package plan defines what a task is, and compiles it for a database. From the task's rules and the database's
// catalog, options and holds it makes jobs, with notes on the parts that are left out, and the missing rights.
// Compiling does not query the database, and the result is never changed.
//
// Rules are made of parts (part*.go), such as the comparison of a date with a cutoff (part_date.go).
package plan
