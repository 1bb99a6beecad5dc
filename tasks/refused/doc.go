// Package refused has the error of a task, run or request that is refused for a reason that programs may check.
package refused
