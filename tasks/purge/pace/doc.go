// Package pace decides how large batches are and how many workers run, from how long batches take and which rows fail.
// It is pure arithmetic: it needs no database. Package purge asks it before each batch.
package pace
