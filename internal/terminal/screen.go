package terminal

import (
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Screen is a terminal, a file or a pipe.
type Screen struct {
	io.Writer
	Width   func() int // in columns; 0 if lines are not limited
	Moves   bool       // whether lines can be drawn again
	Colours bool       // whether words may be coloured; NO_COLOR and TERM=dumb prevent it
}

// ScreenOf returns w itself if it is already a Screen.
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

// colours are those of a run's states.
var colours = map[string]text.Color{
	"succeeded": text.FgGreen,
	"failed":    text.FgRed,
	"cancelled": text.FgYellow,
}

// Paint colours words that have a colour, if the screen shows colours.
func (s *Screen) Paint(word string) string {
	if colour, ok := colours[word]; ok && s.Colours {
		return colour.Sprint(word)
	}
	return word
}

// Wrap breaks a line between words if it is too long for the screen, and indents the further lines. A word that is
// longer than a line remains whole.
func (s *Screen) Wrap(line string, indent int) string {
	width := s.Width()
	if width == 0 {
		return line
	}
	var lines []string
	current, column := "", 0
	for i, word := range strings.Split(line, " ") {
		size := text.StringWidthWithoutEscSequences(word)
		switch {
		case i == 0:
		case size > 0 && column+1+size > width && column > indent:
			lines = append(lines, strings.TrimRight(current, " "))
			current, column = strings.Repeat(" ", indent), indent
		default:
			current, column = current+" ", column+1
		}
		current, column = current+word, column+size
	}
	return strings.Join(append(lines, current), "\n")
}
