package terminal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Printable returns one line without control characters, on which a terminal could act: anyone may have chosen the
// names of tables, files and variables.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// PrintableJSON escapes unprintable characters, which only the strings of JSON can have.
func PrintableJSON(raw []byte) string {
	var out strings.Builder
	for _, r := range string(raw) {
		switch {
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// OneLine separates lines by semicolons, other than after a colon. It leaves out repeated lines, since the driver
// reports every attempt to connect.
func OneLine(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return Printable(strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": "))
}
