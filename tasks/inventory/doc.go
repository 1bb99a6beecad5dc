// Package inventory reads which tables a database has, and how large they are, from the catalog and the statistics.
// It does not read the tables, except for the oldest and newest dates that an index finds at once. Package growth
// of service/runs records the sizes, and package coverage lists the tables.
package inventory
