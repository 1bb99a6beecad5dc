// Package sqlexpr composes SQL from expressions that include their arguments: conditions, values and whole
// statements. Parameters are numbered when a statement is sent. Package rules makes expressions of rules and sets
// the values of their arguments, and package purge makes statements of them.
package sqlexpr
