// Package userdata finds and erases one person's data in the workflows of AEM Forms: in the Forms server's database,
// and in its Global Document Storage (GDS), a folder or tables.
//
// An erasure is a record in the schema cleanupd of the Forms database. What it deletes, and its account of it, are one
// transaction, so that it continues after a crash where it was, and its receipt is exact. Files are deleted after that,
// by the session ids that the record keeps until they are gone.
package userdata
