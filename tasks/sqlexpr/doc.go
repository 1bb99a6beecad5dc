// Package sqlexpr composes SQL from expressions that have their arguments with them: conditions, values and whole
// statements. Parameters get their numbers when a statement is sent. Package plan compiles rules to expressions,
// package binding gives arguments their values, and package purge makes statements of them.
package sqlexpr
