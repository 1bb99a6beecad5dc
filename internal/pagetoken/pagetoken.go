// Package pagetoken turns the key of a page's last row into the token of the next page, and back. All lists of the API
// use it, so that there is one format: the key as JSON, in base64.
package pagetoken

import (
	"encoding/base64"
	"encoding/json"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// The text is not a token of Format. Only the canonical form of a key is accepted.
var ErrInvalid = failure.Field("page_token", "not a page token of this service")

// The page begins after the row with this key, which must be a value that JSON restores.
func Format[K any](key K) string {
	text, err := json.Marshal(key)
	if err != nil {
		panic(err) // never: keys are numbers, texts, times and UUIDs
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// An empty token stands for the first page, and gives the zero key. Parse fails with ErrInvalid, also for a token of
// the zero key.
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

// Keys are numbers above 0; 0 for an empty token. ParseNumber fails with ErrInvalid.
func ParseNumber(token string) (int64, error) {
	number, err := Parse[int64](token)
	if number < 0 {
		return 0, ErrInvalid
	}
	return number, err
}

// list has up to one row more than a page. next is "" on the last page.
func Cut[T, K any](list []T, size int, key func(last T) K) (page []T, next string) {
	if len(list) <= size {
		return list, ""
	}
	return list[:size], Format(key(list[size-1]))
}
