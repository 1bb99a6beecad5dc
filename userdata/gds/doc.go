// Package gds finds and deletes documents in the folder of a Forms server's document storage (Global Document Storage).
// A document is a file; a marker file next to it, GUID.sessionID, names each session that refers to it. Deleting
// needs a claimed erasure, which records the files; packages erasure and sweep delete with it, userdata previews.
package gds
