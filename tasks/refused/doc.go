// Package refused has the error of a task, a run or a question that is refused for a reason which programs may check.
package refused
