package store

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A page token that this service has not made is rejected, and does not reach the database.
func FuzzPageToken(f *testing.F) {
	const id = "01a1fde2-f3f9-7404-bf12-c82939b07280"
	for _, plain := range []string{
		"",
		" ",
		"2026",
		"2026-01-01T00:00:00Z",
		"2026-01-01T00:00:00Z " + id,
		"2026-01-01T00:00:00.123456Z " + id,
		"2026-01-01T00:00:00.120Z " + id,
		"2026-01-01T01:00:00+01:00 " + id,
		"0000-01-01T00:00:00Z " + id,
		"9999-12-31T23:59:59.999999999Z " + id,
		"2026-01-01T00:00:00Z urn:uuid:" + id,
		"2026-01-01T00:00:00Z {" + id + "}",
		"2026-01-01T00:00:00Z 01A1FDE2-F3F9-7404-BF12-C82939B07280",
		"2026-01-01T00:00:00Z  " + id,
	} {
		f.Add(base64.URLEncoding.EncodeToString([]byte(plain)))
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(plain)) + "\n=")
	}
	db := migrated(f)
	f.Fuzz(func(t *testing.T, token string) {
		created, id, err := parseRunToken(token)
		if err == nil && formatRunToken(created, id.String()) != token {
			t.Errorf("%q is taken for %q", token, formatRunToken(created, id.String()))
		}
		if _, _, listed := ListRuns(
			t.Context(),
			db.Pool,
			Basic,
			Filter{},
			1,
			token,
		); token != "" &&
			!errors.Is(listed, err) {
			t.Errorf("the page of %q: %v", token, listed)
		}
	})
}

// So is a page token of the deliveries on mid-sourcing servers.
func FuzzRemoteToken(f *testing.F) {
	for _, plain := range []string{
		"",
		" ",
		"1 2",
		"1 2 ",
		"1 2 far",
		"-1 -9223372036854775808 far away",
		"1 9223372036854775808 x",
		"01 2 x",
		"+1 2 x",
		"1  2 x",
		"1 2 x\x00",
		"1 2 \xff",
		"a b c",
	} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(plain)))
		f.Add(base64.URLEncoding.EncodeToString([]byte(plain)) + "\n=")
	}
	db := migrated(f)
	f.Fuzz(func(t *testing.T, token string) {
		d, err := parseRemoteToken(token)
		if err == nil && token != "" && formatRemoteToken(d) != token {
			t.Errorf("%q is taken for %+v", token, d)
		}
		if _, _, listed := ListRemoteDeliveries(t.Context(), db.Pool, nil, 1, token); !errors.Is(listed, err) {
			t.Errorf("the page of %q: %v", token, listed)
		}
	})
}

// migrated is an empty database with the service's schema.
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
