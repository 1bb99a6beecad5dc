package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

func table(policies ...*cleanupv1.Policy) []terminal.Row {
	rows := []terminal.Row{{"POLICY", "ENABLED", "RAN", "TABLE", "ACTION", "CONDITION"}}
	for _, p := range policies {
		rows = append(rows,
			terminal.Row{
				p.GetName(), yesOrNo(p.GetEnabled()), yesOrNo(hasRun(p)), p.GetTable(), action(p), condition(p),
			})
	}
	return rows
}

func facts(p *cleanupv1.Policy) []terminal.Row {
	rows := []terminal.Row{
		{"policy", p.GetName()},
		{"task", policy.Prefix + p.GetName()},
		{"table", p.GetTable()},
	}
	for i, part := range conditions(p) {
		rows = append(rows, terminal.Row{[]string{"condition", "and"}[min(i, 1)], part})
	}
	rows = append(rows, []terminal.Row{
		{"action", action(p)},
		{"enabled", yesOrNo(p.GetEnabled())},
		{"ran", yesOrNo(hasRun(p))},
	}...)
	if p.GetLimit() > 0 {
		rows = append(rows, terminal.Row{"rows a statement", humanize.Comma(int64(p.GetLimit()))})
	}
	if p.GetUndo() != nil {
		rows = append(rows, terminal.Row{"undo", format.Period(p.GetUndo().AsDuration())})
	}
	if p.GetDescription() != "" {
		rows = append(rows, terminal.Row{"description", p.GetDescription()})
	}
	return rows
}

func yesOrNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// hasRun reports whether a run has followed a saved plan with the current rule.
func hasRun(p *cleanupv1.Policy) bool {
	return !slices.ContainsFunc(p.GetWarnings(), func(w *cleanupv1.Message) bool {
		return w.GetCode() == message.PolicyUnproven.Code
	})
}

func action(p *cleanupv1.Policy) string {
	switch {
	case p.GetPartitions() == cleanupv1.Partitions_PARTITIONS_DETACH:
		return "detach whole partitions"
	case p.GetPartitions() == cleanupv1.Partitions_PARTITIONS_DELETE:
		return "delete, and keep empty partitions"
	case len(p.GetAssign()) == 0:
		return "delete"
	}
	var columns []string
	for _, a := range p.GetAssign() {
		value := "NULL"
		switch {
		case a.GetValueFromKey() != "":
			value = fmt.Sprintf("%q", a.GetValueFromKey())
		case a.Value != nil:
			value = fmt.Sprintf("%q", a.GetValue())
		}
		columns = append(columns, a.GetColumn()+" = "+value)
	}
	return "set " + strings.Join(columns, ", ")
}

func condition(p *cleanupv1.Policy) string { return strings.Join(conditions(p), ", and ") }

// Rows describes the rows that a policy by age deletes. For an age of 0 it says that these are all rows with a past
// date.
func Rows(p *cleanupv1.Policy) string {
	if a := p.GetOlderThan(); a.GetDays() == 0 && a.GetHours() == 0 {
		return fmt.Sprintf("every row of %s whose %s is in the past", p.GetTable(), a.GetColumn())
	}
	return fmt.Sprintf("rows of %s with %s", p.GetTable(), condition(p))
}

// conditions returns the parts of the condition. A row matches if all of them are true.
func conditions(p *cleanupv1.Policy) (parts []string) {
	if a := p.GetOlderThan(); a != nil {
		age := format.Count(int64(a.GetDays()), "day", "days")
		if _, inHours := a.GetAge().(*cleanupv1.OlderThan_Hours); inHours {
			age = format.Count(int64(a.GetHours()), "hour", "hours")
		}
		if a.GetDays() == 0 && a.GetHours() == 0 {
			parts = append(parts, a.GetColumn()+" before now")
		} else {
			parts = append(parts, a.GetColumn()+" older than "+age)
		}
	}
	for _, f := range p.GetFilters() {
		parts = append(parts, comparison(f))
	}
	if o := p.GetOrphanOf(); o != nil {
		parts = append(parts, fmt.Sprintf("no %s with %s = %s", o.GetParentTable(), o.GetParentColumn(), o.GetColumn()))
	}
	if p.GetUnreferenced() {
		parts = append(parts, "no row of another table refers to it")
	}
	if k := p.GetKeepNewest(); k != nil {
		per := ""
		if len(k.GetPer()) > 0 {
			per = " per " + strings.Join(k.GetPer(), ", ")
		}
		by := cmp.Or(k.GetOrderBy(), p.GetOlderThan().GetColumn())
		parts = append(parts,
			fmt.Sprintf("not among the %s newest%s by %s", humanize.Comma(int64(k.GetCount())), per, by))
	}
	return parts
}

// signs are the comparisons that are written with a sign.
var signs = map[cleanupv1.FilterOp]string{
	cleanupv1.FilterOp_FILTER_OP_EQUAL:            "=",
	cleanupv1.FilterOp_FILTER_OP_NOT_EQUAL:        "<>",
	cleanupv1.FilterOp_FILTER_OP_LESS:             "<",
	cleanupv1.FilterOp_FILTER_OP_LESS_OR_EQUAL:    "<=",
	cleanupv1.FilterOp_FILTER_OP_GREATER:          ">",
	cleanupv1.FilterOp_FILTER_OP_GREATER_OR_EQUAL: ">=",
}

func comparison(f *cleanupv1.Filter) string {
	const most = 5
	shown := f.GetValues()[:min(len(f.GetValues()), most)]
	values := strings.Join(shown, ", ")
	if more := len(f.GetValues()) - len(shown); more > 0 {
		values += fmt.Sprintf(", and %d more", more)
	}
	sign, ok := signs[f.GetOp()]
	switch {
	case !ok && len(shown) == 0:
		return f.GetColumn() + " " + format.EnumName(f.GetOp())
	case !ok && f.GetOp() != cleanupv1.FilterOp_FILTER_OP_STARTS_WITH:
		return fmt.Sprintf("%s %s (%s)", f.GetColumn(), format.EnumName(f.GetOp()), values)
	case !ok:
		sign = format.EnumName(f.GetOp())
	}
	return fmt.Sprintf("%s %s %s", f.GetColumn(), sign, values)
}
