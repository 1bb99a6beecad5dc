package worktables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Mask returns a pattern for LIKE that matches names with a prefix.
func Mask(prefix string) string { return strings.ReplaceAll(prefix, "_", `\_`) + "%" }

// TaskMask returns the pattern for all work tables that a task drops; "" if it drops none.
func TaskMask(p *plan.Plan) string {
	for _, j := range p.Jobs {
		if j.Step.Tables != nil {
			return Mask(j.Step.Tables.Prefix)
		}
	}
	if len(p.Drops) == 0 {
		return ""
	}
	return Mask(p.Drops[0].Prefix)
}

func Rule(d plan.Drop) string {
	rule := fmt.Sprintf("the id in the name is that of no row of %s", d.Owner.Name)
	if d.Rule != "" {
		rule += " where " + d.Rule
	}
	if d.Lists {
		rule += ", and no _grp<id> in it is that of a list"
	}
	return rule
}

func Quoted(tables []campaign.WorkTable) (names []string) {
	for _, w := range tables {
		names = append(names, w.Quoted())
	}
	return names
}

func OfKind(tables []campaign.WorkTable, views bool) []campaign.WorkTable {
	return slices.DeleteFunc(slices.Clone(tables), func(w campaign.WorkTable) bool { return w.View != views })
}

// DropStatement returns the statement that drops tables, all or none of which are views. It never cascades.
func DropStatement(tables []campaign.WorkTable) (sql string, args []any) {
	names := Quoted(tables)
	if tables[0].ByFunction {
		return "SELECT " + campaign.DropFunction + "($1::text[]::regclass[])", []any{names}
	}
	if tables[0].View {
		return "DROP VIEW " + strings.Join(names, ", "), nil
	}
	return "DROP TABLE " + strings.Join(names, ", "), nil
}
