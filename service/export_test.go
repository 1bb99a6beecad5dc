package service

import "time"

// Hurry gives clients little time, until the function that it returns is called. No server may be running meanwhile
// but the test's own.
func Hurry(headers, body, stall time.Duration) (restore func()) {
	before := []time.Duration{headerTimeout, bodyTimeout, stallTimeout}
	headerTimeout, bodyTimeout, stallTimeout = headers, body, stall
	return func() { headerTimeout, bodyTimeout, stallTimeout = before[0], before[1], before[2] }
}

// MaxCalls and MaxWatchers are what a caller may have under way.
const (
	MaxCalls    = maxCalls
	MaxWatchers = maxWatchers
)
