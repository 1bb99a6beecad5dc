// Package figures counts what guards need to know about a task: how many rows of a table it would delete, by which
// rules, and how many rows the table has. Package guard judges these figures.
package figures
