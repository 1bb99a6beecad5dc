package flags

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseDuration parses durations such as 90m, 12h or 90d.
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * 24 * float64(time.Hour)), err
	}
	return time.ParseDuration(text)
}

// Since is a time in the past, given as a time, a date, or how long ago it is.
type Since struct {
	text string
	time time.Time
}

func NewSince(text string) Since {
	var s Since
	if err := s.Set(text); err != nil {
		panic(err) // the text is a constant
	}
	return s
}

func (s *Since) Set(text string) error {
	s.text = text
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		at, err := time.Parse(layout, text)
		if err == nil {
			s.time = at
			return nil
		}
	}
	ago, err := ParseDuration(text)
	if err != nil || ago <= 0 {
		return fmt.Errorf(
			"%q is not how long ago, such as 24h or 7d, nor a date such as 2026-02-28, nor a time such as "+
				"2026-02-28T12:00:00Z",
			text,
		)
	}
	s.time = time.Now().Add(-ago)
	return nil
}

func (s *Since) String() string { return s.text }

func (s *Since) Type() string { return "time" }

// Time returns the zero time if none was given.
func (s *Since) Time() time.Time { return s.time }
