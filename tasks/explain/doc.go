// Package explain shows what a task would do now, and why a row is deleted or not. It neither changes nor locks
// anything.
package explain
