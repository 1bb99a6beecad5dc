// Package hold applies legal holds to a task: to its parents, to its rows, and to work tables. Nothing that is on hold
// is deleted, nor what only a row on hold shows to belong to it; what a hold retains is counted.
package hold
