// Package forecast estimates how many rows tasks would delete or update now, and how many more become obsolete on
// each of the next days if nothing else changes. It compiles each task for several reference times, and reads each
// table with a single statement that shows from which of these times on a row matches. It neither changes nor locks
// anything.
package forecast
