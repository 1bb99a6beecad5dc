package userdata

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Match says how a variable contains a user id.
type Match string

// The most certain match comes first.
const (
	Whole Match = "WHOLE"
	Word  Match = "WORD"
	Part  Match = "PART"
)

// match returns how the text, which is known to contain the user id, contains it.
func match(text, user string) Match {
	if text == user {
		return Whole
	}
	for from := 0; ; {
		i := strings.Index(text[from:], user)
		if i < 0 {
			return Part
		}
		begin := from + i
		end := begin + len(user)
		before, _ := utf8.DecodeLastRuneInString(text[:begin])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if (begin == 0 || !inWord(before)) && (end == len(text) || !inWord(after)) {
			return Word
		}
		_, size := utf8.DecodeRuneInString(text[begin:])
		from = begin + size
	}
}

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_.-@", r)
}
