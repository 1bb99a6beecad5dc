// Package growth samples how large the tables of the database are, once a day and after each run, and computes how fast
// they grow. Manager calls Tick again and again; package coverage reads the growth.
package growth
