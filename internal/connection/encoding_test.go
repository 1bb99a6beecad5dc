package connection_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A Text with any character can be stored in a database of any encoding, and letters of its language are retained.
func TestTextsInEncodings(t *testing.T) {
	t.Parallel()
	letters := map[string]string{
		"EUC_CN": "中", "EUC_JIS_2004": "日", "EUC_JP": "日", "EUC_KR": "가", "KOI8U": "ї", "WIN1255": "א",
	}
	for _, encoding := range pgtest.Empty(t).Strings(
		"SELECT pg_encoding_to_char(i) FROM generate_series(0, 34) i", // all that a database can have
	) {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			config, err := pgx.ParseConfig(pgtest.Encoded(t, encoding).URL())
			if err != nil {
				t.Fatal(err)
			}
			connection.UTF8(config)
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(t.Context()) }()
			if err := connection.Storable(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
			store := func(text string) (stored string, err error) {
				return stored, conn.QueryRow(t.Context(), "SELECT $1", connection.Text(text)).Scan(&stored)
			}
			for first := rune(0); first < 3<<16; first += 256 {
				var text strings.Builder
				for r := first; r < first+256; r++ {
					text.WriteRune(r)
				}
				if _, err := store(text.String()); err != nil {
					t.Errorf("the characters from %U on: %v", first, err)
				}
			}
			if got, err := store(letters[encoding]); got != letters[encoding] {
				t.Errorf("%s is stored as %q: %v", letters[encoding], got, err)
			}
		})
	}
}
