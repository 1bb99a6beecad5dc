package pace

import "sync/atomic"

// Pace is how hard a run works. The values are stored.
type Pace string

// The paces. A run is gentle only while other sessions are active.
const (
	Gentle   Pace = "GENTLE"
	Balanced Pace = "BALANCED"
	Fast     Pace = "FAST"
)

// Paces lists all paces.
var Paces = []Pace{Gentle, Balanced, Fast}

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
