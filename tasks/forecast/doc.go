// Package forecast estimates how many rows tasks would delete or update now, and how many more become obsolete on each
// of the next days, if nothing else changes. It compiles each task for several reference times, and asks in one
// statement a table from which of them on each row matches. It changes and locks nothing.
package forecast
