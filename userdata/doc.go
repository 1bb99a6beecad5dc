// Package userdata finds and erases one person's data in the workflows of AEM Forms: in the Forms server's database and
// in its Global Document Storage (GDS), a folder or tables. It also purges process instances that ended long ago, as
// tasks of runs, and sweeps stale documents. Package service calls the Manager, which ties the packages below together.
//
// An erasure is a record in the service's own database. Each transaction that erases also writes an entry in a journal
// in the Forms database, from which the record is brought up to date: so an erasure continues after a crash, and its
// receipt is exact. Files are deleted afterwards, by the session ids that the record keeps until then.
package userdata
