// Package tasks is the product: the cleanup pipeline of a Campaign database, one file a task, in the order of
// pipeline.go.
//
// A task is data: tables, and rules which of their rows are obsolete. Package plan says what a task can be, and
// compiles it for a database; package execute carries it out, and package purge deletes the rows.
package tasks
