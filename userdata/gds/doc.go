// Package gds finds and deletes documents in the folder of a Forms server's document storage (Global Document
// Storage). A document is a file. Each session that refers to it has a marker file next to it, named GUID.sessionID.
// Deleting needs a claimed erasure, which records the files. Packages erasure and sweep delete documents with gds,
// and userdata previews that.
package gds
