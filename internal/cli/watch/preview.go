package watch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// maxPreviewTables is how many tables the preview of a dry run shows.
const maxPreviewTables = 30

// printPreview prints the largest changes first, and the guards that would refuse them. A screen that is too narrow for
// a table gets a list. With options other than the stored ones, it shows only the tables for which they make a
// difference. more says how to see the others.
func printPreview(s *terminal.Screen, r *cleanupv1.Run, limit int, more string) error {
	var list []*cleanupv1.TablePreview
	for _, t := range r.GetResults() {
		list = append(list, t.GetPreview()...)
	}
	if len(list) == 0 {
		return nil
	}
	total := len(list)
	if r.GetWhatIf() != nil {
		fmt.Fprintln(s, "\n"+s.Wrap(difference(list), 2))
		if limit < math.MaxInt {
			list = slices.DeleteFunc(list, func(p *cleanupv1.TablePreview) bool { return affected(p) == p.GetBaselineRows() })
		}
	}
	slices.SortStableFunc(list, func(a, b *cleanupv1.TablePreview) int { return cmp.Compare(affected(b), affected(a)) })
	shown := list[:min(len(list), limit)]
	if len(shown) > 0 {
		fmt.Fprintln(s)
	}
	var err error
	if table := previewTable(shown); len(shown) > 0 && s.Fits(table) {
		err = s.PrintTable(table)
		printRemarks(s, shown)
	} else {
		printPreviewList(s, shown)
	}
	printMore(s, total-len(shown), more)
	if r.GetUndo() != nil {
		fmt.Fprintln(s, s.Wrap(fmt.Sprintf("The trash would need about %s for undo (an estimate).",
			format.Size(r.GetTrashBytes())), 2))
	}
	for _, t := range r.GetTrippedGuards() {
		fmt.Fprintln(s, s.Wrap(DescribeGuard(t), 2))
	}
	return err
}

// printRemarks prints what the table has no column for. A remark on several tables is printed once.
func printRemarks(s *terminal.Screen, list []*cleanupv1.TablePreview) {
	for _, p := range list {
		if text := partitions(p); text != "" {
			fmt.Fprintln(s, s.Wrap(terminal.Printable(p.GetTable()+": "+text), 2))
		}
	}
	tables := map[string][]string{}
	var all []string
	for _, p := range list {
		for _, remark := range remarks(p) {
			if tables[remark] == nil {
				all = append(all, remark)
			}
			if !slices.Contains(tables[remark], p.GetTable()) {
				tables[remark] = append(tables[remark], p.GetTable())
			}
		}
	}
	for _, remark := range all {
		fmt.Fprintln(s, s.Wrap(terminal.Printable(strings.Join(tables[remark], ", ")+": "+remark), 2))
	}
}

func remarks(p *cleanupv1.TablePreview) []string {
	remarks := slices.Clone(p.GetRemarks())
	for _, why := range p.GetNoUndo() {
		remarks = append(remarks, "no undo: "+why)
	}
	return remarks
}

// difference compares what a run would do with other options and with the stored ones.
func difference(list []*cleanupv1.TablePreview) string {
	var then, now int64
	for _, p := range list {
		if p.GetAction() != cleanupv1.PreviewAction_PREVIEW_ACTION_DROP {
			then, now = then+p.GetRows(), now+p.GetBaselineRows()
		}
	}
	about := ""
	if slices.ContainsFunc(list, isEstimate) {
		about = "about "
	}
	text := fmt.Sprintf("With these options, a run would delete or change %s%s, ", about, format.Rows(then))
	switch {
	case then > now:
		return text + humanize.Comma(then-now) + " more than with the stored ones."
	case then < now:
		return text + humanize.Comma(now-then) + " fewer than with the stored ones."
	}
	return text + "as with the stored ones."
}

// maxRuleLines limits the lines of a rule in a list.
const maxRuleLines = 3

func previewTable(list []*cleanupv1.TablePreview) []terminal.Row {
	// empty columns are left out
	rows := []terminal.Row{{"TABLE", "WOULD", "HOW MANY", "NOW", "OF", "BYTES", "TRASH", "OLDEST", "NEWEST", "WHY"}}
	for _, p := range list {
		total, now := "", ""
		if p.BaselineRows != nil {
			now = figure(p.GetBaselineRows(), isEstimate(p))
		}
		if p.GetRowsTotal() > 0 {
			total = figure(p.GetRowsTotal(), p.GetRowsTotalEstimated())
		}
		rows = append(rows,
			terminal.Row{
				p.GetTable(), format.EnumName(p.GetAction()), figure(affected(p), isEstimate(p)), now, total,
				format.Size(p.GetBytes()), trashSize(p), format.Date(p.GetOldestTime()), format.Date(p.GetNewestTime()),
				p.GetRule(),
			})
	}
	return rows
}

func printPreviewList(s *terminal.Screen, list []*cleanupv1.TablePreview) {
	for _, p := range list {
		figures := fmt.Sprintf("%s %s", format.EnumName(p.GetAction()), figure(affected(p), isEstimate(p)))
		if p.BaselineRows != nil {
			figures += ", now " + figure(p.GetBaselineRows(), isEstimate(p))
		}
		if p.GetRowsTotal() > 0 {
			figures += " of " + figure(p.GetRowsTotal(), p.GetRowsTotalEstimated())
		}
		figures += ", " + format.Size(p.GetBytes())
		if size := trashSize(p); size != "" {
			figures += ", " + size + " in the trash"
		}
		if p.GetOldestTime() != nil {
			figures += ", " + format.Date(p.GetOldestTime()) + " to " + format.Date(p.GetNewestTime())
		}
		fmt.Fprintln(s, terminal.Printable(p.GetTable()))
		fmt.Fprintln(s, s.Wrap("  "+figures, 2))
		fmt.Fprintln(s, s.Wrap("  "+terminal.Cut(terminal.Printable(p.GetRule()), maxRuleLines*(s.Width()-4)), 2))
		if text := partitions(p); text != "" {
			fmt.Fprintln(s, s.Wrap(terminal.Printable("  "+text), 2))
		}
		for _, remark := range remarks(p) {
			fmt.Fprintln(s, s.Wrap(terminal.Printable("  but "+remark), 4))
		}
	}
}

// trashSize is empty if nothing would go to the trash.
func trashSize(p *cleanupv1.TablePreview) string {
	if p.GetTrashBytes() == 0 {
		return ""
	}
	return format.Size(p.GetTrashBytes())
}

// partitions names the first partitions that would be removed; "" if there are none.
func partitions(p *cleanupv1.TablePreview) string {
	n := p.GetPartitions()
	if n == 0 {
		return ""
	}
	fate := "dropped whole"
	if p.GetAction() == cleanupv1.PreviewAction_PREVIEW_ACTION_DETACH {
		fate = "detached"
	}
	return fmt.Sprintf("%s would be %s: %s", format.Count(n, "partition", "partitions"), fate, firstNames(p.GetNames(), n))
}

// firstNames names the first of n partitions.
func firstNames(names []string, n int64) string {
	names = names[:min(len(names), 3)]
	text := strings.Join(names, ", ")
	if more := n - int64(len(names)); more > 0 {
		text += fmt.Sprintf(" and %s more", humanize.Comma(more))
	}
	return text
}

// isEstimate reports whether a run may find another number of rows, for a reason that a remark gives.
func isEstimate(p *cleanupv1.TablePreview) bool {
	return slices.ContainsFunc(p.GetRemarks(), func(why string) bool { return strings.HasPrefix(why, "an estimate") })
}

// estimates says which figures of a dry run are estimates.
type estimates struct{ deleted, updated bool }

func estimatesOf(tasks ...*cleanupv1.TaskResult) (e estimates) {
	for _, t := range tasks {
		for _, p := range t.GetPreview() {
			updates := p.GetAction() == cleanupv1.PreviewAction_PREVIEW_ACTION_UPDATE
			e.updated = e.updated || updates && isEstimate(p)
			e.deleted = e.deleted || !updates && isEstimate(p)
		}
	}
	return e
}

func figure(n int64, estimate bool) string {
	if estimate {
		return "~" + humanize.Comma(n)
	}
	return humanize.Comma(n)
}

func affected(p *cleanupv1.TablePreview) int64 {
	if p.GetAction() == cleanupv1.PreviewAction_PREVIEW_ACTION_DROP {
		return p.GetTables()
	}
	return p.GetRows()
}

func DescribeGuard(g *cleanupv1.TrippedGuard) string {
	details := ""
	if g.GetRecentRows() > 0 {
		details = fmt.Sprintf(", %s of them by earlier tasks and runs within a day, without accepted ones",
			humanize.Comma(g.GetRecentRows()))
	}
	if g.GetTotalRows() > 0 {
		details += fmt.Sprintf(", of about %s rows", humanize.Comma(g.GetTotalRows()))
	}
	return fmt.Sprintf("The guard %s refuses this for %s: the number is %s%s; the limit is %s.",
		format.EnumName(g.GetGuard()), g.GetTable(), humanize.Comma(g.GetNumber()), details,
		humanize.Comma(g.GetLimit()))
}

func AcceptCommand(server *rpc.Server, plan string, guards []*cleanupv1.TrippedGuard) string {
	arguments := "--plan " + plan
	for _, g := range guards {
		accepted := fmt.Sprintf("%s,%s,%d", format.EnumName(g.GetGuard()), g.GetTable(), g.GetNumber())
		arguments += " --accept-guard " + format.ShellWord(accepted)
	}
	return server.Command("run", arguments)
}
