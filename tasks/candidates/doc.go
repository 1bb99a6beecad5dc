// Package candidates determines which rows several jobs of a run delete, so that each row is counted at the first
// job that deletes it. It only works with conditions, and needs no database. Dry runs, guards and explanations use
// it to count.
package candidates
