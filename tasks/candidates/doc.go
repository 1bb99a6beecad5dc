// Package candidates determines which rows several jobs of a run delete, so that each row counts at the first job that
// deletes it. It is pure: conditions go in, conditions come out. Dry runs, guards and explanations count by them.
package candidates
