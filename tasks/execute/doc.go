// Package execute carries out the tasks of a run, on one database, and reports to a Journal. Where the journal is kept,
// and who reads it, is not known here.
package execute
