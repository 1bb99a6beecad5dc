package pace

import (
	"strings"
	"testing"
)

// A flag takes the names of all paces, as people and as scripts write them, and no others. An empty text is the
// default.
func TestPaceFlag(t *testing.T) {
	t.Parallel()
	for _, want := range Paces {
		for _, text := range []string{string(want), "PACE_" + string(want), strings.ToLower(string(want))} {
			var got Pace
			if err := got.Set(text); err != nil || got != want || got.String() != strings.ToLower(string(want)) {
				t.Errorf("%s: %q, %v", text, got, err)
			}
		}
	}
	got := Fast
	if err := got.Set(""); err != nil || got != "" {
		t.Errorf("an empty text: %q, %v", got, err)
	}
	for _, text := range []string{"PACE_", "PACE_UNSPECIFIED", "slow"} {
		if err := got.Set(text); err == nil || err.Error() != "must be gentle, balanced, fast" {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
