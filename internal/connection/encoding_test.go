package connection_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

func encoded(t *testing.T, encoding string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.Encoded(t, encoding).URL())
	if err != nil {
		t.Fatal(err)
	}
	connection.UTF8(config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	if err := connection.Storable(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A Text and JSON with any characters can be stored in a database of any encoding, and are read back as they were.
func TestTextsInEncodings(t *testing.T) {
	t.Parallel()
	some := []string{
		"plain", `C:\users\joe`, "é", `\u00e9`, `é\u00e9\\u00e9`, `\\\u00e9`, "日本, ї, € …", "😀", `\ud83d\ude00`, `😀\ud83d`,
		"\u2028\n\t\"<&>\x01", "",
	}
	with := func(every rune) []string { // of the characters of the first three planes
		texts := some
		for first := rune(1); first < 3<<16; first += every << 12 {
			var text strings.Builder
			for r := first; r < min(first+every<<12, 3<<16); r += every {
				text.WriteRune(r)
			}
			texts = append(texts, text.String())
		}
		return texts
	}
	for _, encoding := range pgtest.Empty(t).Strings(
		"SELECT pg_encoding_to_char(i) FROM generate_series(0, 34) i", // all that a database can have
	) {
		t.Run(encoding, func(t *testing.T) {
			suite.Except(t, suite.Long, "UTF8", "LATIN1", "SQL_ASCII")
			t.Parallel()
			conn, texts := encoded(t, encoding), with(61)
			if encoding == "UTF8" || encoding == "LATIN1" { // all others store the same escapes as this one
				texts = with(1)
			}
			for _, want := range texts {
				var text connection.Text
				var key, value map[string]string
				var raw json.RawMessage
				if err := conn.QueryRow(t.Context(),
					"SELECT $1::text, $2::jsonb, ($3::jsonb[])[1]::json, json_build_array($1::text)",
					connection.Text(want), map[string]string{want: ""}, []map[string]string{{"": want}}).
					Scan(&text, &key, &value, &raw); err != nil {
					t.Fatalf("%.40q: %v", want, err)
				}
				var list []string
				if err := json.Unmarshal(raw, &list); err != nil || list[0] != want {
					t.Errorf("%.40q is %.40q in raw JSON: %v", want, list, err)
				}
				if _, isKey := key[want]; string(text) != want || !isKey || value[""] != want {
					t.Errorf("%.40q is read as %.40q, %.40q and %.40q", want, text, key, value)
				}
			}
			for _, damaged := range []string{"a\x00b", "a\xffb"} {
				var text connection.Text
				var value map[string]string
				if err := conn.QueryRow(t.Context(), "SELECT $1::text, $2::jsonb",
					connection.Text(damaged), map[string]string{"": damaged}).Scan(&text, &value); err != nil ||
					text != "a\ufffdb" || value[""] != "a\ufffdb" {
					t.Errorf("%q is read as %q and %q: %v", damaged, text, value, err)
				}
			}
		})
	}
}

// A database in UTF-8 or without an encoding stores every character as it is. Others store escapes, which people can
// read.
func TestStoredEscapes(t *testing.T) {
	t.Parallel()
	const text = "é 😀"
	for encoding, want := range map[string]string{
		"LATIN1": `\u00e9 \ud83d\ude00`, "UTF8": text, "SQL_ASCII": text,
	} {
		var stored, inJSON string
		if err := encoded(t, encoding).QueryRow(t.Context(), "SELECT $1::text, $2::jsonb ->> 0",
			connection.Text(text), []string{text}).Scan(&stored, &inJSON); err != nil || stored != want || inJSON != want {
			t.Errorf("in %s, %q and %q are stored: %v", encoding, stored, inJSON, err)
		}
	}
}
