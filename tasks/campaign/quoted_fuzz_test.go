package campaign_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// The server reads a quoted name as the name that was quoted.
func FuzzQuoted(f *testing.F) {
	for _, name := range []string{
		"nmsdelivery", "NmsDelivery", `x"; DROP TABLE nmsdelivery; --`, `""`, `a.b`, `\`, "U&", "ä", "'", "a\nb", " ",
		"$1", "@x",
	} {
		f.Add("public", name)
		f.Add(name, name)
	}
	db := pgtest.Empty(f)
	f.Fuzz(func(t *testing.T, schema, name string) {
		for _, s := range []string{schema, name} {
			if s == "" || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				return // cannot be a name in the catalog
			}
		}
		for _, quoted := range []string{
			(&campaign.Table{Schema: schema, Name: name}).Quoted(),
			campaign.WorkTable{Schema: schema, Name: name}.Quoted(), campaign.Leaf{Schema: schema, Name: name}.Quoted(),
		} {
			var parts []string
			if err := db.QueryRow(t.Context(), "SELECT parse_ident($1)", quoted).Scan(&parts); err != nil {
				t.Fatalf("%q.%q as %s: %v", schema, name, quoted, err)
			}
			if !slices.Equal(parts, []string{schema, name}) {
				t.Errorf("%q.%q as %s is %q", schema, name, quoted, parts)
			}
		}
	})
}
