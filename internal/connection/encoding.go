package connection

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
)

func IsStorable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// Text is a text for people, such as a message or a reason: when it is stored, characters that the database's
// encoding lacks are replaced. Use a string for a text that is compared with others; the server then reports an
// error instead.
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

// Storable makes the connection replace characters of Texts and JSON that the database's encoding lacks. It also
// replaces the character 0, which PostgreSQL allows in no text.
func Storable(_ context.Context, conn *pgx.Conn) error {
	letters := alphabet(conn.PgConn().ParameterStatus("server_encoding"))
	types := conn.TypeMap()
	types.TryWrapEncodePlanFuncs = append(
		[]pgtype.TryWrapEncodePlanFunc{func(value any) (pgtype.WrappedEncodePlanNextSetter, any, bool) {
			text, ok := value.(Text)
			return &textPlan{letters: letters}, string(text), ok
		}},
		types.TryWrapEncodePlanFuncs...)
	jsonb := &pgtype.Type{
		Name: "jsonb",
		OID:  pgtype.JSONBOID,
		Codec: &pgtype.JSONBCodec{Unmarshal: json.Unmarshal, Marshal: func(v any) ([]byte, error) {
			text, err := json.Marshal(v)
			return letters.json(text), err
		}},
	}
	types.RegisterTypes([]*pgtype.Type{
		jsonb,
		{Name: "_jsonb", OID: pgtype.JSONBArrayOID, Codec: &pgtype.ArrayCodec{ElementType: jsonb}},
	})
	return nil
}

type textPlan struct {
	letters letters
	next    pgtype.EncodePlan
}

func (p *textPlan) SetNext(next pgtype.EncodePlan) { p.next = next }

func (p *textPlan) Encode(value any, buf []byte) ([]byte, error) {
	return p.next.Encode(string(p.letters.text([]byte(value.(Text)))), buf)
}

// letters reports whether an encoding has a character other than ASCII.
type letters func(r rune) bool

// encodings are those whose characters are known. In any other encoding, only ASCII is stored.
var encodings = map[string]encoding.Encoding{
	"LATIN1":       charmap.ISO8859_1,
	"LATIN2":       charmap.ISO8859_2,
	"LATIN3":       charmap.ISO8859_3,
	"LATIN4":       charmap.ISO8859_4,
	"LATIN5":       charmap.ISO8859_9,
	"LATIN6":       charmap.ISO8859_10,
	"LATIN7":       charmap.ISO8859_13,
	"LATIN8":       charmap.ISO8859_14,
	"LATIN9":       charmap.ISO8859_15,
	"LATIN10":      charmap.ISO8859_16,
	"ISO_8859_5":   charmap.ISO8859_5,
	"ISO_8859_6":   charmap.ISO8859_6,
	"ISO_8859_7":   charmap.ISO8859_7,
	"ISO_8859_8":   charmap.ISO8859_8,
	"WIN1250":      charmap.Windows1250,
	"WIN1251":      charmap.Windows1251,
	"WIN1252":      charmap.Windows1252,
	"WIN1253":      charmap.Windows1253,
	"WIN1254":      charmap.Windows1254,
	"WIN1255":      charmap.Windows1255,
	"WIN1256":      charmap.Windows1256,
	"WIN1257":      charmap.Windows1257,
	"WIN1258":      charmap.Windows1258,
	"WIN866":       charmap.CodePage866,
	"WIN874":       charmap.Windows874,
	"KOI8R":        charmap.KOI8R,
	"KOI8U":        charmap.KOI8U,
	"EUC_JP":       japanese.EUCJP,
	"EUC_JIS_2004": japanese.EUCJP,
	"EUC_KR":       korean.EUCKR,
	"EUC_CN":       simplifiedchinese.HZGB2312,
}

// lacking lists characters of Go's encodings that PostgreSQL's encodings of the same name lack.
var lacking = map[string]string{
	"EUC_CN": "·ńňǹɑɡ—€ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹ\ufe31\ufe33\ufe34\ufe35\ufe36\ufe37\ufe38\ufe39\ufe3a\ufe3b\ufe3c\ufe3d\ufe3e" +
		"\ufe3f\ufe40\ufe41\ufe42\ufe43\ufe44",
	"EUC_JIS_2004": "\u2015\u2211\uffe0\uffe1\uffe2\uffe3\uffe5",
	"KOI8U":        "Ўў",
	"WIN1255":      "\u05ba",
}

// isExtension reports whether the code belongs to a part of Go's encoding that PostgreSQL's encoding lacks.
func isExtension(name, code string) bool {
	switch name {
	case "EUC_JIS_2004": // JIS X 0212 and IBM's characters, where JIS X 0213 has others
		return code[0] == 0x8f || code[0] >= 0xf9
	case "EUC_KR": // Unified Hangul Code, or CP949
		return code[0] < 0xa1 || code[1] < 0xa1
	}
	return false
}

// alphabet takes PostgreSQL's name of an encoding. A database without an encoding (SQL_ASCII) stores any bytes.
func alphabet(name string) letters {
	switch known := encodings[name]; {
	case name == "UTF8" || name == "SQL_ASCII":
		return func(rune) bool { return true }
	case known != nil:
		return func(r rune) bool {
			code, err := known.NewEncoder().String(string(r))
			return err == nil && !strings.ContainsRune(lacking[name], r) && !isExtension(name, code)
		}
	}
	return func(rune) bool { return false }
}

// replacement returns what is stored instead of a character that the encoding lacks.
func (has letters) replacement(r rune) string {
	switch {
	case has(utf8.RuneError):
		return string(utf8.RuneError)
	case r == '…':
		return "..."
	}
	return "?"
}

func (has letters) text(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == 0 || r == utf8.RuneError || (r >= utf8.RuneSelf && !has(r)) {
			out = append(out, has.replacement(r)...)
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

// json replaces characters in JSON of encoding/json, which escapes the character 0, invalid bytes and two line
// separators.
func (has letters) json(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		if text[i+1] == 'u' {
			code, _ := strconv.ParseUint(string(text[i+2:i+6]), 16, 16) // always hexadecimal
			if code == 0 || code >= utf8.RuneSelf {
				out = utf8.AppendRune(out, rune(code)) // replaced by text if necessary
				i += 5
				continue
			}
		}
		out = append(out, text[i], text[i+1])
		i++
	}
	return has.text(out)
}
