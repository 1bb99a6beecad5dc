package service

import "time"

// Hurry gives clients little time, until the function that it returns is called. Meanwhile no other server than the test's may
// be running.
func Hurry(headers, body, stall time.Duration) (restore func()) {
	before := []time.Duration{headerTimeout, bodyTimeout, stallTimeout}
	headerTimeout, bodyTimeout, stallTimeout = headers, body, stall
	return func() { headerTimeout, bodyTimeout, stallTimeout = before[0], before[1], before[2] }
}

// MaxCalls and MaxWatchers are how many calls and streams a caller may have in progress.
const (
	MaxCalls    = maxCalls
	MaxWatchers = maxWatchers
)
