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

// Text is for people, such as a message or a reason: characters that the database's encoding lacks are replaced when it
// is stored. A text that is compared with others is a string, for which the server reports an error then.
type Text string

// Connections exchange UTF-8 with the server in any database. PostgreSQL cannot convert from MULE_INTERNAL, and a
// database without an encoding (SQL_ASCII) may have bytes that are not UTF-8: with these, bytes are exchanged as they
// are.
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

// The connection replaces characters of Texts and JSON that the database's encoding lacks, and the character 0, which
// no text of PostgreSQL has.
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

// Which characters other than ASCII an encoding has.
type letters func(r rune) bool

// Encodings whose characters are known. Of any other, only ASCII is stored.
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

// Characters of Go's encodings that PostgreSQL's encodings of the same name lack.
var lacking = map[string]string{
	"EUC_CN": "·ńňǹɑɡ—€ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹ\ufe31\ufe33\ufe34\ufe35\ufe36\ufe37\ufe38\ufe39\ufe3a\ufe3b\ufe3c\ufe3d\ufe3e" +
		"\ufe3f\ufe40\ufe41\ufe42\ufe43\ufe44",
	"EUC_JIS_2004": "\u2015\u2211\uffe0\uffe1\uffe2\uffe3\uffe5",
	"KOI8U":        "Ўў",
	"WIN1255":      "\u05ba",
}

// isExtension reports whether the code is in a part of one of Go's encodings that PostgreSQL's lacks.
func isExtension(name, code string) bool {
	switch name {
	case "EUC_JIS_2004": // JIS X 0212, and IBM's characters: JIS X 0213 has others there
		return code[0] == 0x8f || code[0] >= 0xf9
	case "EUC_KR": // Unified Hangul Code, or CP949
		return code[0] < 0xa1 || code[1] < 0xa1
	}
	return false
}

// name is PostgreSQL's. A database without an encoding (SQL_ASCII) stores any bytes.
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

// replacement returns what to store instead of a character that the encoding lacks.
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

// text is JSON as encoding/json writes it, which escapes the character 0, invalid bytes, and two separators of lines.
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
				out = utf8.AppendRune(out, rune(code)) // for text
				i += 5
				continue
			}
		}
		out = append(out, text[i], text[i+1])
		i++
	}
	return has.text(out)
}
