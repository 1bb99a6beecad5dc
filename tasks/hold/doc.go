// Package hold applies legal holds to the parents of a task and to work tables, and counts the rows that holds retain.
// Rows on hold are left out of sweeps by package binding (Binder.Sweep), by conditions that package plan compiles.
package hold
