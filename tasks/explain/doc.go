// Package explain answers two questions: what would a task do now, and why is a row deleted or not. It changes and
// locks nothing.
package explain
