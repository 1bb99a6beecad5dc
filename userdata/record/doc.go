// Package record has the SQL of the record of erasures, in the schema cleanupd of the service's own database: requests,
// items, events, receipts, and the sessions and files whose documents must still be deleted. It needs a connection,
// pool or transaction; userdata reads and requests erasures with it, package claim and the packages above it record
// what they do.
package record
