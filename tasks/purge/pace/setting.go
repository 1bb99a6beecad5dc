package pace

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Pace is how hard a run works. The values are stored. A *Pace is the value of a command-line flag.
type Pace string

// A run is gentle only while other sessions are active.
const (
	Gentle   Pace = "GENTLE"
	Balanced Pace = "BALANCED"
	Fast     Pace = "FAST"
)

var Paces = []Pace{Gentle, Balanced, Fast}

func Names() (names []string) {
	for _, p := range Paces {
		names = append(names, p.String())
	}
	return names
}

// Set also accepts the name that JSON uses, such as PACE_GENTLE. An empty text means the default.
func (p *Pace) Set(text string) error {
	if text == "" {
		*p = ""
		return nil
	}
	given := Pace(strings.TrimPrefix(strings.ToUpper(text), "PACE_"))
	if !slices.Contains(Paces, given) {
		return fmt.Errorf("must be %s", strings.Join(Names(), ", "))
	}
	*p = given
	return nil
}

func (p *Pace) String() string { return strings.ToLower(string(*p)) }

func (p *Pace) Type() string { return "pace" }

// Setting is a run's pace, which may change while the run is active. It is safe for concurrent use.
type Setting struct{ value atomic.Value }

func NewSetting(p Pace) *Setting {
	s := &Setting{}
	s.Set(p)
	return s
}

// Set changes the pace from the next batch on.
func (s *Setting) Set(p Pace) { s.value.Store(p) }

// Get returns the pace, which is Balanced if the setting is nil.
func (s *Setting) Get() Pace {
	if s == nil {
		return Balanced
	}
	return s.value.Load().(Pace)
}
