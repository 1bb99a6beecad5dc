package userdata

import (
	"strings"
	"testing"
	"unicode"
)

// The match is the most certain of all places where the text contains the user id.
func FuzzMatch(f *testing.F) {
	for _, c := range [][2]string{
		{"ann", "ann"},
		{"joanna", "ann"},
		{"joanna ann", "ann"},
		{"<name>ann</name>", "ann"},
		{"<ann/>", "ann"},
		{`a="ann"`, "ann"},
		{"&ann;", "ann"},
		{"ann.smith@example.com", "ann"},
		{"aaaa", "aa"},
		{"-aa aa", "aa"},
		{" . ", "."},
		{"..", "."},
		{"éann", "ann"},
		{"\xffann\xff", "ann"},
		{"日本 本", "本"},
		{"x ann", " ann"},
		{"a\u0301nn", "a"},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, text, user string) {
		if user == "" || !strings.Contains(text, user) {
			return
		}
		want := Part
		runes, sought := []rune(text), []rune(user)
		for i := range len(runes) - len(sought) + 1 {
			if string(runes[i:i+len(sought)]) == string(sought) && bounded(runes, i-1) &&
				bounded(runes, i+len(sought)) {
				want = Word
			}
		}
		if text == user {
			want = Whole
		}
		if string(runes) != text || string(sought) != user {
			return // impossible in a database; match only has to return
		}
		if got := match(text, user); got != want {
			t.Errorf("%q in %q: %s, want %s", user, text, got, want)
		}
	})
}

// A word may end before or after this position of a text.
func bounded(text []rune, i int) bool {
	return i < 0 || i >= len(text) ||
		(!unicode.IsLetter(text[i]) && !unicode.IsDigit(text[i]) && !strings.ContainsRune("_.-@", text[i]))
}
