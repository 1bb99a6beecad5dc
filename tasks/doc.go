// Package tasks defines the cleanup pipeline of a Campaign database: one file a task, or a family of tasks, in the
// order of pipeline.go.
//
// A task is data: tables, and rules that define which of their rows are obsolete. Package plan compiles a task for a
// database, package pipeline has an executor carry it out (execute, or dryrun), and package purge deletes the rows.
package tasks
