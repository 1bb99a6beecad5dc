// Package targets reads the targets of notifications from flags, and has the command that sends a test notification to
// them. Package serve uses the flags, and the program offers the command.
package targets
