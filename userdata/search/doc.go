// Package search finds the process instances and orphan tasks of one person in a Forms database: those that the
// person started or took part in, and those with the person's user id in a variable of a workflow. It needs a
// transaction of package forms. Package userdata calls it to find, erase and verify.
package search
