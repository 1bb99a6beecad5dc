package service

import (
	"log/slog"
	"net/http"
	"time"
)

// Hurry gives clients little time, until the function that it returns is called. Meanwhile no other server than the test's may
// be running.
func Hurry(headers, body, stall time.Duration) (restore func()) {
	before := []time.Duration{headerTimeout, bodyTimeout, stallTimeout}
	headerTimeout, bodyTimeout, stallTimeout = headers, body, stall
	return func() { headerTimeout, bodyTimeout, stallTimeout = before[0], before[1], before[2] }
}

// MaxCalls, MaxWatchers and MaxChecks are how many calls, streams and health checks a caller may have in progress.
var (
	MaxCalls    = most[aCall].n
	MaxWatchers = most[aStream].n
	MaxChecks   = most[aCheck].n
)

// MaxOfNetwork is how many connections from one network may be strangers.
const MaxOfNetwork = maxOfNetwork

// Surviving is a handler whose panics end a request alone.
func Surviving(next http.Handler) http.Handler {
	return recovery{slog.New(slog.DiscardHandler)}.handler(next)
}
