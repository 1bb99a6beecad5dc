package runs

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A page token that this service has not made is refused: whatever it holds, no nonsense reaches the database.
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
	m := New(Config{Pool: db.Pool})
	f.Fuzz(func(t *testing.T, token string) {
		created, id, err := parseToken(token)
		if err == nil && formatToken(created, id) != token {
			t.Errorf("%q is taken for %q", token, formatToken(created, id))
		}
		if _, _, listed := m.List(t.Context(), Basic, Filter{}, 1, token); token != "" && !errors.Is(listed, err) {
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
	m := New(Config{Pool: db.Pool})
	f.Fuzz(func(t *testing.T, token string) {
		d, err := parseRemoteToken(token)
		if err == nil && token != "" && formatRemoteToken(d) != token {
			t.Errorf("%q is taken for %+v", token, d)
		}
		if _, _, listed := m.RemoteDeliveries(t.Context(), nil, 1, token); !errors.Is(listed, err) {
			t.Errorf("the page of %q: %v", token, listed)
		}
	})
}

// An id that is not a run's is ErrNotFound, whatever it holds.
func FuzzRunID(f *testing.F) {
	for _, id := range []string{
		"",
		"x",
		"01a1fde2-f3f9-7404-bf12-c82939b07280",
		"urn:uuid:01a1fde2-f3f9-7404-bf12-c82939b07280",
		"{01a1fde2-f3f9-7404-bf12-c82939b07280}",
		"01a1fde2f3f97404bf12c82939b07280",
		"x\x00",
		"\xff",
	} {
		f.Add(id)
	}
	db := migrated(f)
	m := New(Config{Pool: db.Pool})
	f.Fuzz(func(t *testing.T, id string) {
		if _, err := m.Get(t.Context(), id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := m.Cancel(t.Context(), id); !errors.Is(err, ErrNotFound) {
			t.Errorf("cancelling %q: %v", id, err)
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
