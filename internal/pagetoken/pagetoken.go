// Package pagetoken turns the key of a page's last row into the token of the next page, and back. All lists of the
// API use it, so that all tokens have the same format: the key as JSON, in base64.
package pagetoken

import (
	"encoding/base64"
	"encoding/json"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// ErrInvalid means that the text is not a token of Format. Only the canonical form of a key is accepted.
var ErrInvalid = failure.Field("page_token", "not a page token of this service")

// Format returns the token of the page after the row with this key. The key must not be the zero value, and must
// survive a round trip through JSON.
func Format[K any](key K) string {
	text, err := json.Marshal(key)
	if err != nil {
		panic(err) // never: keys are numbers, texts, times and UUIDs
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// Parse returns the zero key for an empty token, which means the first page. It fails with ErrInvalid, also for a token
// of the zero key.
func Parse[K comparable](token string) (key K, err error) {
	if token == "" {
		return key, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return key, ErrInvalid
	}
	var read K
	if err := json.Unmarshal(text, &read); err != nil || read == key || Format(read) != token {
		return key, ErrInvalid
	}
	return read, nil
}

// ParseNumber returns a key above 0, or 0 for an empty token. It fails with ErrInvalid.
func ParseNumber(token string) (int64, error) {
	number, err := Parse[int64](token)
	if number < 0 {
		return 0, ErrInvalid
	}
	return number, err
}

// Cut returns a page of the list, which has at most one row more than a page, and the token of the next page, which
// is "" if this is the last one.
func Cut[T, K any](list []T, size int, key func(last T) K) (page []T, next string) {
	if len(list) <= size {
		return list, ""
	}
	return list[:size], Format(key(list[size-1]))
}
