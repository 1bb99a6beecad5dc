// Package tasks is the core of the product: the cleanup pipeline of a Campaign database, one file per task.
//
// Most tasks are data, a table and an SQL condition, which the engine in package purge executes.
// The pipeline is a slice in pipeline.go. Run executes it and reports to a Journal; where the journal
// is kept, and who reads it, is not known here.
package tasks
