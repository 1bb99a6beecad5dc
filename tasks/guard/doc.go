// Package guard judges whether what a task would do is unusual. It is pure judgement: the figures come from its caller,
// which reads only those that a judgement asks for, since counting rows is expensive. Packages execute and dryrun
// refuse a task, or show what would be refused, by its trips.
package guard
