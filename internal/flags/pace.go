package flags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Pace is the value of a flag: a pace, or "".
type Pace pace.Pace

// Set implements pflag.Value. Scripts may give the name in JSON.
func (p *Pace) Set(text string) error {
	name := pace.Pace(strings.TrimPrefix(strings.ToUpper(text), "PACE_"))
	if !slices.Contains(pace.Paces, name) {
		return fmt.Errorf("must be %s", strings.Join(Paces(), ", "))
	}
	*p = Pace(name)
	return nil
}

// String implements pflag.Value.
func (p *Pace) String() string { return strings.ToLower(string(*p)) }

// Type implements pflag.Value.
func (p *Pace) Type() string { return "pace" }

// Paces returns the names of the paces.
func Paces() (names []string) {
	for _, p := range pace.Paces {
		names = append(names, strings.ToLower(string(p)))
	}
	return names
}
