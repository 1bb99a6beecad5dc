package policies

import (
	"fmt"
	"strings"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

const aboutSuggestions = `# Suggested policies, all of them disabled. Correct the columns and the days, enable
# what you want, and then:
#   cleanupd policies apply FILE
#   cleanupd run --preview
`

// Suggested returns a file for apply with the suggested policies of tables. Comments say how large the tables are and
// why a column was chosen, and why there is no policy for others.
func Suggested(tables []*cleanupv1.Table) (string, error) {
	var (
		suggested []*cleanupv1.Policy
		about     []string
		without   strings.Builder
	)
	for _, t := range tables {
		p := t.GetSuggestion().GetPolicy()
		size := fmt.Sprintf("%s: %s, about %s", t.GetName(), format.Size(t.GetBytes()+t.GetIndexBytes()),
			format.Count(t.GetRows(), "row", "rows"))
		switch {
		case t.GetSuggestion() == nil:
		case p == nil:
			fmt.Fprintf(&without, "# %s\n", terminal.Printable(size+"; "+t.GetSuggestion().GetReason()))
		default:
			column := fmt.Sprintf("%s: %s", p.GetOlderThan().GetColumn(), t.GetSuggestion().GetColumnReason())
			for _, d := range t.GetDateColumns() {
				if d.GetColumn() == p.GetOlderThan().GetColumn() && d.GetOldestTime() != nil {
					column += "; the oldest is of " + d.GetOldestTime().AsTime().Format("2006-01-02")
				}
			}
			suggested = append(suggested, p)
			about = append(about, "# "+terminal.Printable(size)+"\n# "+terminal.Printable(column))
		}
	}
	text, err := encode(suggested, about...)
	if without.Len() > 0 {
		text += "# No policy is suggested for:\n" + without.String()
	}
	return aboutSuggestions + text, err
}
