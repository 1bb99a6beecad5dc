// Package policy defines retention rules for tables that the tasks of the application do not know, as data that people
// set, and makes tasks of them. Validate checks a policy by itself, Check against a database, and Task compiles to
// rules of package plan.
package policy
