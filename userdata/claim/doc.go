// Package claim lets one replica at a time work on an erasure. It locks the erasure and records heartbeats. It runs
// the transactions that erase in the Forms database, each of which writes an entry to the journal there, and brings
// the record up to date from that journal. It needs the service's own database and the Forms database. Package
// userdata claims erasures, and packages erasure, sweep and gds do their work with the claim.
package claim
