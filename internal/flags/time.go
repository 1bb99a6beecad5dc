package flags

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const day = 24 * time.Hour

// ParseDuration parses durations such as 90m, 12h or 90d.
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		switch {
		case errors.Is(err, strconv.ErrRange) || max(n, -n) > int(math.MaxInt64/day):
			return 0, fmt.Errorf("must be at most %dd, not %q", math.MaxInt64/day, text)
		case err == nil:
			return time.Duration(n) * day, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	return 0, fmt.Errorf("must be a time such as 90m, 12h or 30d, not %q", text)
}

// DurationVar adds a flag for a duration, which can be in days.
func DurationVar(f *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	f.Var((*duration)(d), name, usage)
}

type duration time.Duration

func (d *duration) Set(text string) error {
	parsed, err := ParseDuration(text)
	if err == nil {
		*d = duration(parsed)
	}
	return err
}

func (d *duration) String() string {
	switch of := time.Duration(*d); {
	case of == 0:
		return "0" // which the help leaves out as a default
	case of%day == 0:
		return fmt.Sprintf("%dd", of/day)
	default:
		return of.String()
	}
}

func (*duration) Type() string { return "duration" }

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
