package coverage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/insight"
)

// Retained are the work tables that are retained for the same reason.
type Retained struct {
	Reason string
	Tables int64
	Bytes  int64 // with indexes
}

// maxReasons is how many reasons are listed; the remaining ones are summed up in one entry.
const maxReasons = 50

type covered struct{ insight.Coverage }

// of returns the tasks that cover a table, and the work tables that are retained, by reason, with the most bytes
// first.
func (c covered) of(t *insight.Table) (tasks []string, retained []Retained) {
	if t.Kind != insight.WorkTables {
		return c.Tasks[t.Quoted()], nil
	}
	if t.Schema != c.Schema {
		return nil, nil
	}
	dropped := c.WorkTables[t.Base]
	byReason := map[string]Retained{}
	for name, figures := range t.Members {
		reason := dropped.Retained[name]
		if reason == "" {
			continue
		}
		r := byReason[reason]
		byReason[reason] = Retained{reason, r.Tables + 1, r.Bytes + figures.Bytes + figures.IndexBytes}
	}
	for _, r := range byReason {
		retained = append(retained, r)
	}
	slices.SortFunc(retained, func(a, b Retained) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Tables, a.Tables),
			strings.Compare(a.Reason, b.Reason))
	})
	return dropped.Tasks, shorten(retained)
}

func shorten(retained []Retained) []Retained {
	if len(retained) <= maxReasons {
		return retained
	}
	rest := Retained{Reason: fmt.Sprintf("%d other reasons", len(retained)-maxReasons)}
	for _, r := range retained[maxReasons:] {
		rest.Tables, rest.Bytes = rest.Tables+r.Tables, rest.Bytes+r.Bytes
	}
	return append(slices.Clone(retained[:maxReasons]), rest)
}
