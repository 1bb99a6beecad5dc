// Package sqlexpr composes SQL from expressions that include their arguments: conditions, values and whole
// statements. Parameters are numbered when a statement is sent. Package plan compiles rules to expressions, package
// binding sets the values of arguments, and package purge makes statements of them.
package sqlexpr
