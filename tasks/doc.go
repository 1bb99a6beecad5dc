// Package tasks defines the cleanup pipeline of a Campaign database. Each file has a task or a family of tasks;
// pipeline.go has their order.
//
// A task is data: tables, and rules that define which of their rows are obsolete. Package rules compiles a task for a
// database, package cleanup runs tasks or previews what they would do, and package purge deletes the rows.
package tasks
