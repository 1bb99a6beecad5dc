// Package etag keeps callers from overwriting each other's changes. An etag is a hash of a setting, which callers read
// and send back with their change. Packages that store settings check it in the transaction of the change: service for
// options, service/runs for the schedule, guards and policies, userdata for purges.
package etag

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// ErrStale means that the setting has changed since the caller read it.
var ErrStale = failure.New(failure.Conflict, "changed since this etag was read: get the current state first")

// Of returns the etag of a setting, from all of its values that callers may set.
func Of(values ...any) string {
	text, _ := json.Marshal(values) // never fails: they are texts, numbers, truth values and times
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Check fails with ErrStale if the given etag is not the current one. An empty etag always matches. what names the
// setting.
func Check(given, current, what string) error {
	if given == "" || given == current {
		return nil
	}
	return fmt.Errorf("%s %w", what, ErrStale)
}
