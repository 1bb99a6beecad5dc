package service

import (
	"log/slog"
	"net/http"
)

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
