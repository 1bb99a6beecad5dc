package flags

import "strings"

// SplitUnquoted splits a text at each sep that is not within double quotes, as PostgreSQL quotes names.
func SplitUnquoted(text string, sep byte) (parts []string) {
	quoted, start := false, 0
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == sep && !quoted:
			parts, start = append(parts, text[start:i]), i+1
		}
	}
	return append(parts, text[start:])
}

// CutUnquoted is like strings.Cut, at the first sep that is not within double quotes.
func CutUnquoted(text string, sep byte) (before, after string, found bool) {
	if before = SplitUnquoted(text, sep)[0]; before == text {
		return text, "", false
	}
	return before, text[len(before)+1:], true
}

// TableAndColumn splits TABLE.COLUMN. The table may have a schema, and stays quoted.
func TableAndColumn(text string) (table, column string) {
	parts := SplitUnquoted(text, '.')
	last := len(parts) - 1
	return strings.Join(parts[:last], "."), Unquote(parts[last])
}

// Unquote returns a name as the database stores it.
func Unquote(name string) string {
	if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		return name
	}
	return strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
}

// Quote quotes a name that would not be read as one without quotes.
func Quote(name string) string {
	if strings.ContainsAny(name, `".=, `) {
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return name
}
