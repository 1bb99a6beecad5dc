// Package record has the SQL of the record of erasures, in the schema cleanupd of the service's own database:
// requests, items, events, receipts, and the sessions and files whose documents must still be deleted. It works with
// a connection, a pool or a transaction. Package userdata reads and requests erasures with it; package claim and the
// packages that use a claim record what they do.
package record
