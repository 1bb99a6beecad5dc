// Package removal deletes the rows of process instances, tasks and documents in the Forms database, or counts them for
// a dry run. It needs a transaction of package forms; package erasure and sweep delete with it, userdata previews,
// verifies and counts for purges with it.
package removal
