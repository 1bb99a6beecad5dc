package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

func NewExplain() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	cmd := &cobra.Command{
		Use:   "explain TASK | TABLE KEY",
		Short: "Show what a task would do here and now, or why a row is, or is not, deleted",
		Long: "Show what a task would do here and now: the SQL with its parameters, how rows are found, and what is " +
			"skipped and\nwhy. What the tasks before it would change is not taken into account: run --dry-run does.\n" +
			"Or show what the next run would do with a row, and why: by each step that concerns its table, part by " +
			"part. KEY is\n" +
			"the value of the table's integer key, or COLUMN=VALUE, several of them with commas, for all columns of " +
			"one of its unique\n" +
			"keys; moments as 2026-02-28T12:00:00Z. A text may only be the whole key, and needs the role admin.\n" +
			"Of a row that is not there, show which runs took rows of its table. Nothing is changed or locked.",
		Example: "  cleanupd explain delivery-logs\n  cleanupd explain deliveries -o json | jq -r '.statements[].sql'\n" +
			"  cleanupd explain nmsbroadlogrcp 4711\n  cleanupd explain nmsrcpgrprel igroupid=5,irecipientid=7",
		Args: taskOrRow,
		RunE: rpc.WithCleanup(
			&server,
			func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
				if len(args) == 2 {
					args[1] = strings.TrimPrefix(args[1], " ")
					out, err := client.ExplainRow(
						cmd.Context(),
						&cleanupv1.ExplainRowRequest{Table: args[0], Key: args[1]},
					)
					if err != nil {
						return err
					}
					if output != format.Table {
						return output.Print(cmd.OutOrStdout(), out, nil)
					}
					return printRow(terminal.ScreenOf(cmd.OutOrStdout()), args[1], out)
				}
				out, err := client.ExplainTask(cmd.Context(), &cleanupv1.ExplainTaskRequest{Task: args[0]})
				if err != nil {
					return err
				}
				if output != format.Table {
					return output.Print(cmd.OutOrStdout(), out, nil)
				}
				printExplanation(terminal.ScreenOf(cmd.OutOrStdout()), out)
				return nil
			},
		),
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

// withNegativeKey are the arguments of the program, in which the key of a row that is below 0 has a space before it:
// ids often are, and would be taken for flags.
func ProtectNegativeKey(args []string) []string {
	args = slices.Clone(args)
	for i := range args {
		if n, err := strconv.ParseInt(
			args[i],
			10,
			64,
		); err == nil && n < 0 && args[0] == "explain" &&
			!slices.Contains(args[:i], "--") {
			args[i] = " " + args[i]
		}
	}
	return args
}

// taskOrRow accepts the name of a task, or a table and a key.
func taskOrRow(cmd *cobra.Command, args []string) error {
	if len(args) != 1 && len(args) != 2 {
		return flags.Errorf(
			"%s takes the name of one task, as in cleanupd tasks, or a table and a key; see %s --help",
			cmd.CommandPath(),
			cmd.CommandPath(),
		)
	}
	return nil
}

// printRow prints why a row is, or is not, deleted.
func printRow(s *terminal.Screen, key string, x *cleanupv1.ExplainRowResponse) error {
	if !x.GetExists() {
		fmt.Fprintf(s, "%s %s: there is no such row\n", terminal.Printable(x.GetTable()), terminal.Printable(key))
		if len(x.GetRuns()) == 0 {
			fmt.Fprintln(s, "No run is known that took rows of this table.")
			return nil
		}
		rows := []terminal.Row{{"RUN", "BEGAN", "ROWS OF THE TABLE", "TASKS"}}
		for _, r := range x.GetRuns() {
			rows = append(
				rows,
				terminal.Row{
					r.GetRunId(),
					r.GetStartTime().AsTime().Format(time.RFC3339),
					humanize.Comma(r.GetRowsDeleted()),
					strings.Join(r.GetTasks(), ", "),
				},
			)
		}
		return s.PrintTable(rows)
	}
	fmt.Fprintf(
		s,
		"%s %s: %s\n",
		terminal.Printable(x.GetTable()),
		terminal.Printable(key),
		verdictText(x.GetVerdict(), x.GetTask(), x.GetSince().AsTime(), x.GetWhy()),
	)
	fmt.Fprintf(s, "by the clock %s\n", x.GetReferenceTime().AsTime().Format(time.RFC3339))
	for _, step := range x.GetSteps() {
		fmt.Fprintf(
			s,
			"\n%s, %s: %s\n",
			step.GetTask(),
			format.EnumName(step.GetAction()),
			verdictText(step.GetVerdict(), "", step.GetSince().AsTime(), step.GetWhy()),
		)
		fmt.Fprintln(s, "  rule: "+terminal.Printable(step.GetRule()))
		for _, p := range step.GetParts() {
			of := ""
			if p.GetOf() != "" {
				of = p.GetOf() + ": "
			}
			fmt.Fprintf(
				s,
				"  %d. %-7s %s%s (%s)\n",
				p.GetAlternative(),
				format.EnumName(p.GetTruth()),
				terminal.Printable(of),
				terminal.Printable(p.GetText()),
				terminal.Printable(strings.Join(p.GetValues(), ", ")),
			)
		}
	}
	return nil
}

// verdictText is a verdict for people.
func verdictText(v cleanupv1.Verdict, task string, since time.Time, why string) string {
	text := strings.ToUpper(format.EnumName(v))
	if v == cleanupv1.Verdict_VERDICT_LATER {
		text += " from " + since.Format(time.RFC3339)
	}
	if task != "" {
		text += " by the task " + task
	}
	if why != "" {
		text += ": " + terminal.Printable(why)
	}
	return text
}

// printExplanation prints what a task would do.
func printExplanation(s *terminal.Screen, e *cleanupv1.ExplainTaskResponse) {
	fmt.Fprintf(s, "%s, by the clock %s\n", e.GetTask(), e.GetReferenceTime().AsTime().Format(time.RFC3339))
	if set := e.GetSet(); set != nil {
		fmt.Fprintf(
			s,
			"\nIt begins with %d rows of %s: %s\n",
			e.GetSetRows(),
			set.GetTable(),
			terminal.Printable(set.GetRule()),
		)
		printSQL(s, set)
	}
	for _, told := range e.GetStatements() {
		in := ""
		if told.GetPartitions() > 1 {
			in = " in " + strconv.Itoa(int(told.GetPartitions())) + " partitions"
		}
		verb := ""
		if told.GetAction() != cleanupv1.PreviewAction_PREVIEW_ACTION_UNSPECIFIED {
			verb = format.EnumName(told.GetAction()) + " "
		}
		fmt.Fprintf(
			s,
			"\n%s%s%s: %s\n",
			verb,
			terminal.Printable(told.GetTable()),
			in,
			terminal.Printable(told.GetRule()),
		)
		printSQL(s, told)
	}
	if len(e.GetSkips()) > 0 {
		fmt.Fprintln(s, "\nSkipped:")
	}
	for _, why := range e.GetSkips() {
		fmt.Fprintln(s, "  "+terminal.Printable(why))
	}
}

// printSQL prints a statement with its parameters, and how its rows are found.
func printSQL(s *terminal.Screen, told *cleanupv1.ExplainedStatement) {
	if told.GetSql() != "" {
		fmt.Fprintln(s, "  "+terminal.Printable(told.GetSql()))
	}
	for i, value := range told.GetParameters() {
		fmt.Fprintf(s, "  $%d = %s\n", i+1, terminal.Printable(value))
	}
	if told.GetWay() != "" {
		fmt.Fprintln(s, "  found by "+terminal.Printable(told.GetWay()))
	}
}
