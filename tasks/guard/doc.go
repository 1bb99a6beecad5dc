// Package guard decides whether a task would do something unusual. It reads nothing itself: its caller provides the
// figures, and reads only those that a judgement needs, since counting rows is expensive. When a guard trips, package
// cleanup refuses the task; a dry run shows what would be refused.
package guard
