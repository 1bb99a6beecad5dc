// Package rollup replaces the rows of a period by their sums, which Adobe calls to coalesce: the error statistics
// of the last days become one row each. Package execute does this, dryrun counts the rows, and explain shows the
// statement.
package rollup
