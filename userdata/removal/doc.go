// Package removal deletes the rows of process instances, tasks and documents in the Forms database, or counts them
// for a dry run. It needs a transaction of package forms. Packages erasure and sweep delete rows with it; userdata
// previews, verifies and counts the rows of purges with it.
package removal
