// Package inventory reads which tables a database has, and how large they are, from the catalog and the statistics. It
// reads no table, except for the oldest and newest dates that an index finds at once. Package growth of service/runs
// samples it, and coverage lists it.
package inventory
