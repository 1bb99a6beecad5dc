// Package report has the types that an erasure reports and stores as JSON: events, receipts, deleted rows and the
// entries of its journal. It needs no other package; all packages of userdata and the service use it.
package report
