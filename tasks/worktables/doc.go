// Package worktables determines which work tables of the application are unused: those of workflows, deliveries and
// lists that no longer exist. Package execute drops them, dryrun counts them, and explain shows the statements.
package worktables
