// Package insight answers questions before and after runs: what a task would do and why a row is deleted or not
// (explain.go, explain_row.go), which tasks cover a table (coverage.go), how many rows become obsolete on the next days
// (forecast.go), for how long the oldest row of a table has been obsolete (overdue.go), and which tables there are and
// how large they are (inventory.go, measure.go). It uses packages rules and cleanup, and neither changes nor locks
// anything.
package insight
