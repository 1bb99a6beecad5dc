// Package figures counts what guards ask about a task: how many rows of a table it would delete, by which rules, and
// how many the table has. Package guard judges the figures.
package figures
