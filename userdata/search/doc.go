// Package search finds the process instances and orphan tasks of one person in a Forms database: started by the person,
// with the person as participant, or with the person's user id in a variable of a workflow. It needs a transaction of
// package forms; userdata calls it to find, erase and verify.
package search
