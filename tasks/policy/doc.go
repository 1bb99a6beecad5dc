// Package policy defines retention rules for tables of the user's choice. Users set them as data. Validate checks a
// policy by itself, Check checks it against a database, and Task makes a task with rules of package rules.
package policy
