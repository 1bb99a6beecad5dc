// Package policies has the command policies: it shows and changes the retention rules for tables that the tasks of
// Campaign do not know, and keeps them in files. Package main offers the command, and the demo runs it.
package policies
