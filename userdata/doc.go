// Package userdata finds and erases one person's data in the workflows of AEM Forms: in the Forms server's database
// and in its Global Document Storage (GDS), which is a folder or tables. It also purges process instances that ended
// long ago, as tasks of runs, and sweeps stale documents. Package service calls the Manager, which ties the packages
// below together.
//
// An erasure is recorded in the service's own database. Each transaction that erases also writes an entry to a
// journal in the Forms database, and the record is brought up to date from that journal. So an erasure continues
// after a crash, and its receipt is exact. Files are deleted afterwards: the record keeps the ids of their sessions
// until then.
package userdata
