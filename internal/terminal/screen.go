package terminal

import (
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// screen is where a command prints to: a terminal, a file or a pipe.
type Screen struct {
	io.Writer
	Width   func() int // in columns; 0: as wide as a line is
	Moves   bool       // lines can be drawn again
	Colours bool       // words can have a colour, unless NO_COLOR or TERM=dumb says otherwise
}

// screenOf is the screen behind a writer, or the writer itself if it is one.
func ScreenOf(w io.Writer) *Screen {
	if s, ok := w.(*Screen); ok {
		return s
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &Screen{Writer: w, Width: func() int { return 0 }}
	}
	width := func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width < 1 {
			return 80
		}
		return width
	}
	return &Screen{Writer: w, Width: width, Moves: os.Getenv("TERM") != "dumb", Colours: true}
}

// colours are those of the states that are told by more than their word.
var colours = map[string]text.Color{
	"succeeded": text.FgGreen,
	"failed":    text.FgRed,
	"cancelled": text.FgYellow,
}

// painted is a word in its colour, where the screen has colours and the word one.
func (s *Screen) Paint(word string) string {
	if colour, ok := colours[word]; ok && s.Colours {
		return colour.Sprint(word)
	}
	return word
}
