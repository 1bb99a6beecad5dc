package pace

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Pace is how hard a run works. The values are stored. A pointer to one is the value of a flag.
type Pace string

// The paces. A run is gentle only while other sessions are active.
const (
	Gentle   Pace = "GENTLE"
	Balanced Pace = "BALANCED"
	Fast     Pace = "FAST"
)

// Paces lists all paces.
var Paces = []Pace{Gentle, Balanced, Fast}

// Names returns the names of all paces, as flags have them.
func Names() (names []string) {
	for _, p := range Paces {
		names = append(names, p.String())
	}
	return names
}

// Set implements pflag.Value. Scripts may give the name that JSON has. An empty text stands for the default.
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

// String implements pflag.Value.
func (p *Pace) String() string { return strings.ToLower(string(*p)) }

// Type implements pflag.Value.
func (p *Pace) Type() string { return "pace" }

// Setting is the pace of a run, which may change while the run is active. It is safe for concurrent use.
type Setting struct{ value atomic.Value }

// NewSetting returns a setting with a pace.
func NewSetting(p Pace) *Setting {
	s := &Setting{}
	s.Set(p)
	return s
}

// Set changes the pace, from the next batch on.
func (s *Setting) Set(p Pace) { s.value.Store(p) }

// Get returns the pace: Balanced if the setting is nil.
func (s *Setting) Get() Pace {
	if s == nil {
		return Balanced
	}
	return s.value.Load().(Pace)
}
