// Package tasks is the product: the cleanup pipeline of a Campaign database, one file a task.
//
// Most tasks are data, a table and a condition in SQL beside it, which the engine in package purge carries out.
// The pipeline is a slice in pipeline.go. Run works through it and tells a Journal what it does; where the journal
// is kept, and who reads it, is not known here.
package tasks
