// Package plan says what a task is, and compiles it: from its rules, and what is known of a database, follow the jobs
// that do it there, what is skipped and why, and the rights that are missing. A plan is never changed, and nothing is
// read to make one.
package plan
