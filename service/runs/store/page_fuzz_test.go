package store

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A page token that this service did not issue is rejected, and does not reach the database.
func FuzzPageToken(f *testing.F) {
	const id = "01a1fde2-f3f9-7404-bf12-c82939b07280"
	for _, plain := range []string{
		"", " ", "2026", "-1", "null", "{}",
		`{"CreateTime":"2026-01-01T00:00:00Z","ID":"` + id + `"}`,
		`{"CreateTime":"2026-01-01T00:00:00.120Z","ID":"` + id + `"}`,
		`{"CreateTime":"2026-01-01T01:00:00+01:00","ID":"` + id + `"}`,
		`{"CreateTime":"0000-01-01T00:00:00Z","ID":"` + id + `"}`,
		`{"CreateTime":"9999-12-31T23:59:59.999999999Z","ID":"` + id + `"}`,
		`{"CreateTime":"2026-01-01T00:00:00Z","ID":"` + id + `"} `,
		`{"Account":"far","RemoteID":1,"DeliveryID":2}`,
		`{"Account":"x\u0000","RemoteID":1,"DeliveryID":2}`,
		`{"Account":"","RemoteID":-1,"DeliveryID":-9223372036854775808}`,
		`{"Account":"x","RemoteID":1,"DeliveryID":9223372036854775808}`,
		"{\"Account\":\"\xff\",\"RemoteID\":1,\"DeliveryID\":2}",
	} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(plain)))
		f.Add(base64.URLEncoding.EncodeToString([]byte(plain)) + "\n=")
	}
	db := migrated(f)
	f.Fuzz(func(t *testing.T, token string) {
		for name, list := range map[string]func() error{
			"runs": func() error {
				_, _, err := ListRuns(t.Context(), db.Pool, Basic, Filter{}, 1, token)
				return err
			},
			"holds": func() error { _, _, err := ListHolds(t.Context(), db.Pool, true, 1, token); return err },
			"audit": func() error { _, _, err := ListActs(t.Context(), db.Pool, ActFilter{}, 1, token); return err },
			"remote deliveries": func() error {
				_, _, err := ListRemoteDeliveries(t.Context(), db.Pool, nil, 1, token)
				return err
			},
		} {
			if err := list(); err != nil && !errors.Is(err, pagetoken.ErrInvalid) {
				t.Errorf("the page of %s after %q: %v", name, token, err)
			}
		}
	})
}

func migrated(tb testing.TB) *pgtest.DB {
	db := pgtest.Empty(tb)
	conn, err := db.Acquire(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Release()
	if err := Migrate(tb.Context(), conn.Conn()); err != nil {
		tb.Fatal(err)
	}
	return db
}
