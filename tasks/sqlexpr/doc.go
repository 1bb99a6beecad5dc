// Package sqlexpr composes SQL from expressions that carry their arguments: conditions, values and whole statements.
// Parameters are numbered only when a statement is built. Package rules compiles rules to expressions and binds their
// arguments, and package purge builds statements from them.
package sqlexpr
