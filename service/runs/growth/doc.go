// Package growth samples the sizes of the tables of the database once a day and after each run, and computes how
// fast they grow. Manager calls Tick periodically, and package coverage reads the growth.
package growth
