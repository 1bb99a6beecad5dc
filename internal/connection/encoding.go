package connection

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

func IsStorable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// Text is a text for people, such as a message or a reason. In a database that cannot store every character, those
// other than ASCII are stored as escapes such as \u00e9, and a Text reads them back. Use a string for a text that is
// compared with others, such as the name of a table; the server reports an error if it cannot store that.
type Text string

// UTF8 makes connections exchange UTF-8 with the server, whatever the database's encoding. There are two exceptions,
// for which bytes are exchanged as they are: PostgreSQL cannot convert from MULE_INTERNAL, and a database without an
// encoding (SQL_ASCII) may have bytes that are not UTF-8.
func UTF8(config *pgx.ConnConfig) {
	afterConnect(config, func(ctx context.Context, conn *pgconn.PgConn) error {
		switch conn.ParameterStatus("server_encoding") {
		case "MULE_INTERNAL", "SQL_ASCII":
			return nil
		}
		if conn.ParameterStatus("client_encoding") == "UTF8" {
			return nil
		}
		return conn.ExecParams(ctx, "SET client_encoding = 'UTF8'", nil, nil, nil, nil).Read().Err
	})
}

// Storable lets the connection store any Text and any JSON of Go values, and read them back. Only the character 0,
// which PostgreSQL allows in no text, and invalid UTF-8 are replaced. JSON in strings or bytes is stored unchanged, and
// scanned into them as it was stored; use a json.RawMessage to read it without escapes.
func Storable(_ context.Context, conn *pgx.Conn) error {
	encoding := conn.PgConn().ParameterStatus("server_encoding")
	escapes := encoding != "UTF8" && encoding != "SQL_ASCII" // SQL_ASCII stores any bytes
	types := conn.TypeMap()
	types.TryWrapEncodePlanFuncs = append(
		[]pgtype.TryWrapEncodePlanFunc{func(value any) (pgtype.WrappedEncodePlanNextSetter, any, bool) {
			text, ok := value.(Text)
			return &encodeText{escapes: escapes}, string(text), ok
		}},
		types.TryWrapEncodePlanFuncs...)
	marshal := func(v any) ([]byte, error) {
		text, err := json.Marshal(v)
		return storableJSON(text, escapes), err
	}
	var jsonb pgtype.Codec = &pgtype.JSONBCodec{Marshal: marshal, Unmarshal: json.Unmarshal}
	var plainJSON pgtype.Codec = &pgtype.JSONCodec{Marshal: marshal, Unmarshal: json.Unmarshal}
	if escapes {
		types.TryWrapScanPlanFuncs = append(
			[]pgtype.TryWrapScanPlanFunc{func(target any) (pgtype.WrappedScanPlanNextSetter, any, bool) {
				text, ok := target.(*Text)
				return &scanText{}, (*string)(text), ok
			}},
			types.TryWrapScanPlanFuncs...)
		jsonb, plainJSON = escapedJSON{jsonb}, escapedJSON{plainJSON}
	}
	element := &pgtype.Type{Name: "jsonb", OID: pgtype.JSONBOID, Codec: jsonb}
	types.RegisterTypes([]*pgtype.Type{
		element,
		{Name: "_jsonb", OID: pgtype.JSONBArrayOID, Codec: &pgtype.ArrayCodec{ElementType: element}},
		{Name: "json", OID: pgtype.JSONOID, Codec: plainJSON},
	})
	return nil
}

type encodeText struct {
	escapes bool
	next    pgtype.EncodePlan
}

func (p *encodeText) SetNext(next pgtype.EncodePlan) { p.next = next }

func (p *encodeText) Encode(value any, buf []byte) ([]byte, error) {
	return p.next.Encode(storable(string(value.(Text)), p.escapes), buf)
}

// escaped matches an escape, and what could be taken for one.
var escaped = regexp.MustCompile(`\\u[0-9a-f]{4}`)

func storable(text string, escapes bool) string {
	if escapes {
		text = escaped.ReplaceAllStringFunc(text, func(found string) string { return `\u005c` + found[1:] })
	}
	var out strings.Builder
	for _, r := range text { // U+FFFD for invalid bytes
		switch {
		case r == 0:
			out.WriteString(storable("\ufffd", escapes))
		case r < utf8.RuneSelf || !escapes:
			out.WriteRune(r)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
		}
	}
	return out.String()
}

type scanText struct{ next pgtype.ScanPlan }

func (p *scanText) SetNext(next pgtype.ScanPlan) { p.next = next }

// escapedRun matches escapes together, since two of them may be one character.
var escapedRun = regexp.MustCompile(`(\\u[0-9a-f]{4})+`)

func (p *scanText) Scan(src []byte, target any) error {
	text := (*string)(target.(*Text))
	err := p.next.Scan(src, text)
	*text = escapedRun.ReplaceAllStringFunc(*text, unquote)
	return err
}

func unquote(inJSON string) (text string) {
	_ = json.Unmarshal([]byte(`"`+inJSON+`"`), &text) // never fails
	return text
}

// inJSON matches a character other than ASCII in JSON, and a backslash with what belongs to it.
var inJSON = regexp.MustCompile(`[^\x00-\x7f]|\\(\\u[0-9a-f]{4}|u[0-9a-f]{4}|.)`)

// hasBackslash reports whether inJSON has matched an escape with a second backslash.
func hasBackslash(found []byte) bool { return len(found) == len(`\\u00e9`) && found[0] == '\\' }

// storableJSON changes the strings in JSON of encoding/json as storable does. PostgreSQL converts the escapes of JSON
// itself, and refuses those of characters that its encoding lacks; so escapes get a second backslash.
func storableJSON(text []byte, escapes bool) []byte {
	if !escapes && !bytes.Contains(text, []byte(`\u`)) {
		return text
	}
	return inJSON.ReplaceAllFunc(text, func(found []byte) []byte {
		switch {
		case hasBackslash(found) && escapes:
			return append([]byte(`\\u005c`), found[2:]...)
		case hasBackslash(found) || (found[0] == '\\' && found[1] != 'u'):
			return found
		}
		character := unquote(string(found))
		if character[0] != 0 && character[0] < utf8.RuneSelf {
			return found
		}
		return []byte(strings.ReplaceAll(storable(character, escapes), `\`, `\\`))
	})
}

// escapedJSON makes escapes with a second backslash those of JSON before the codec decodes it.
type escapedJSON struct{ pgtype.Codec }

func (c escapedJSON) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if next := c.Codec.PlanScan(m, oid, format, target); next != nil {
		return scanJSON{next}
	}
	return nil
}

type scanJSON struct{ next pgtype.ScanPlan }

func (p scanJSON) Scan(src []byte, target any) error {
	if src != nil {
		src = inJSON.ReplaceAllFunc(src, func(found []byte) []byte {
			if hasBackslash(found) {
				return found[1:]
			}
			return found
		})
	}
	return p.next.Scan(src, target)
}
