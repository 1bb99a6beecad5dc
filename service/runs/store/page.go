package store

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// ErrPageToken reports that a page token was not made by this service. Only the canonical form is accepted.
var ErrPageToken = failure.Field("page_token", "not a page token of this service")

// cutPage returns the first rows of a list of up to one more, and the token of the next page; "" for the last page.
func cutPage[T any](list []T, size int, token func(last T) string) (page []T, next string) {
	if len(list) <= size {
		return list, ""
	}
	return list[:size], token(list[size-1])
}

// formatRunToken returns the token of the page after a run.
func formatRunToken(created time.Time, id string) string {
	return base64.URLEncoding.EncodeToString([]byte(created.UTC().Format(time.RFC3339Nano) + " " + id))
}

func parseRunToken(token string) (created time.Time, id uuid.UUID, err error) {
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return time.Time{}, uuid.Nil, ErrPageToken
	}
	when, text, _ := strings.Cut(string(raw), " ")
	if created, err = time.Parse(time.RFC3339Nano, when); err != nil {
		return time.Time{}, uuid.Nil, ErrPageToken
	}
	id, err = uuid.Parse(text)
	if err != nil || formatRunToken(created, id.String()) != token {
		return time.Time{}, uuid.Nil, ErrPageToken
	}
	return created, id, nil
}

// formatNumberToken returns the token of the page after a numbered row.
func formatNumberToken(number int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(number, 10)))
}

// parseNumberToken returns the number of the row before a page; 0 for the first page.
func parseNumberToken(token string) (number int64, err error) {
	if token == "" {
		return 0, nil
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	number, _ = strconv.ParseInt(string(raw), 10, 64)
	if number <= 0 || formatNumberToken(number) != token {
		return 0, ErrPageToken
	}
	return number, nil
}

// formatRemoteToken returns the token of the page after a remote delivery.
func formatRemoteToken(d RemoteDelivery) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %s", d.RemoteID, d.DeliveryID, d.Account))
}

// parseRemoteToken returns the key of the remote delivery before a page; zero for the first page.
func parseRemoteToken(token string) (d RemoteDelivery, err error) {
	if token == "" {
		return d, nil
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	parts := strings.SplitN(string(raw), " ", 3)
	if len(parts) == 3 {
		d.RemoteID, _ = strconv.ParseInt(parts[0], 10, 64)
		d.DeliveryID, _ = strconv.ParseInt(parts[1], 10, 64)
		d.Account = parts[2]
	}
	if formatRemoteToken(d) != token || !utf8.ValidString(d.Account) || strings.ContainsRune(d.Account, 0) {
		return RemoteDelivery{}, ErrPageToken
	}
	return d, nil
}
