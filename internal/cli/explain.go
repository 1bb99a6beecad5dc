package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/rowkey"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

func NewExplain() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	cmd := &cobra.Command{
		Use:   "explain TASK | TABLE KEY",
		Short: "Show what a task would do now, or why a row is deleted or not",
		Long: "Show what a task would do now: the SQL with its parameters, how rows are found, and which steps\n" +
			"are skipped and why. Changes by the tasks before it are not taken into account: run --dry-run does\n" +
			"that.\n" +
			"Or show what the next run would do with a row, and why: for each step on its table, condition by\n" +
			"condition. KEY is the value of the table's integer key, or COLUMN=VALUE for each column of one of\n" +
			"its unique keys, separated by commas; times as 2026-02-28T12:00:00Z or as PostgreSQL\n" +
			"prints them. A key with a text needs the role admin. For a row that does not exist, show whether it\n" +
			"is in the trash, and which runs deleted rows of its table.\n" +
			"Nothing is changed or locked.",
		Example: "  cleanupd explain shop.order_line order_id=5,no=7\n" +
			"  cleanupd explain policy/old-orders -o json | jq -r '.statements[].sql'\n" +
			"  cleanupd explain policy/old-orders\n  cleanupd explain shop.orders 4711",
		Args:              taskOrRow,
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(&server, knownTasks, knownTables)),
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			if len(args) == 2 {
				return explainRow(cmd, &server, client, output, args[0], strings.TrimPrefix(args[1], " "))
			}
			err := explainTask(cmd, client, output, args[0])
			if status.Code(err) != codes.NotFound {
				return err
			}
			rowErr := explainRow(cmd, &server, client, output, args[0], "") // says which key it needs
			if status.Code(rowErr) != codes.InvalidArgument {
				return errors.New(args[0] + ": " + rpc.PlainError(err).Error() + "; " + rpc.PlainError(rowErr).Error())
			}
			return rowErr
		}),
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

func explainTask(cmd *cobra.Command, client cleanupd.Client, output format.Output, name string) error {
	task, err := client.ExplainTask(cmd.Context(), &cleanupv1.ExplainTaskRequest{Task: name})
	if err != nil {
		return err
	}
	if output != format.Table {
		return output.Print(cmd.OutOrStdout(), task, nil)
	}
	printTask(cmd.OutOrStdout(), task)
	return nil
}

func explainRow(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, output format.Output, table, key string,
) error {
	req := &cleanupv1.ExplainRowRequest{Table: table, Key: rowkey.Parse(key)}
	row, err := client.ExplainRow(cmd.Context(), req)
	if err != nil {
		return err
	}
	if output != format.Table {
		return output.Print(cmd.OutOrStdout(), row, nil)
	}
	return printRow(terminal.ScreenOf(cmd.OutOrStdout()), server, key, row)
}

// ProtectNegativeKey puts a space before the negative key of a row, which would otherwise be parsed as a flag. The
// command explain removes the space.
func ProtectNegativeKey(args []string) []string {
	args = slices.Clone(args)
	for i := range args {
		n, err := strconv.ParseInt(args[i], 10, 64)
		if err == nil && n < 0 && args[0] == "explain" && !slices.Contains(args[:i], "--") {
			args[i] = " " + args[i]
		}
	}
	return args
}

func taskOrRow(cmd *cobra.Command, args []string) error {
	if len(args) != 1 && len(args) != 2 {
		return flags.Errorf("%s takes the name of one task, as in cleanupd tasks, or a table and a key; see %s --help",
			cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

func printRow(s *terminal.Screen, server *rpc.Server, key string, row *cleanupv1.ExplainRowResponse) error {
	if !row.GetExists() {
		fmt.Fprintf(s, "%s %s: no such row\n", terminal.Printable(row.GetTable()), terminal.Printable(key))
		printTrashedRow(s, server, row)
		return printRunsOfTable(s, row.GetRuns())
	}
	fmt.Fprintf(s, "%s %s: %s\n", terminal.Printable(row.GetTable()), terminal.Printable(key),
		describeVerdict(row.GetVerdict(), row.GetTask(), row.GetDeleteAfterTime(), row.GetWhy()))
	fmt.Fprintf(s, "reference time %s\n", format.Time(row.GetReferenceTime()))
	for _, step := range row.GetSteps() {
		fmt.Fprintf(s, "\n%s, %s: %s\n", step.GetTask(), format.EnumName(step.GetAction()),
			strings.TrimPrefix(describeVerdict(step.GetVerdict(), "", step.GetDeleteAfterTime(), step.GetWhy()),
				"DELETE "))
		fmt.Fprintln(s, "  rule: "+terminal.Printable(step.GetRule()))
		for _, p := range step.GetParts() {
			text := p.GetText()
			if p.GetOf() != "" {
				text = p.GetOf() + ": " + text
			}
			if p.GetValues() != nil {
				text += " (" + strings.Join(p.GetValues(), ", ") + ")"
			}
			fmt.Fprintf(s, "  %d. %-7s %s\n", p.GetAlternative(), format.EnumName(p.GetTruth()), terminal.Printable(text))
		}
	}
	return nil
}

// printTrashedRow prints where the row is in the trash, and the commands that bring it back, which are not wrapped so
// that they can be pasted.
func printTrashedRow(s *terminal.Screen, server *rpc.Server, row *cleanupv1.ExplainRowResponse) {
	if row.GetWhy() != "" {
		fmt.Fprintln(s, s.Wrap(terminal.Printable(row.GetWhy()), 2))
	}
	for _, t := range row.GetTrash() {
		until := "while the run works"
		if t.GetExpireTime() != nil {
			until = "until " + format.Time(t.GetExpireTime())
		}
		fmt.Fprintf(s, "It is in the trash %s, deleted by the task %s. To bring it back", until,
			terminal.Printable(t.GetTask()))
		command := server.Command("trash restore", t.GetRunId()) + " --table " + format.ShellWord(t.GetTable())
		if t.GetKey() != "" {
			command += " --key " + format.ShellWord(t.GetKey())
		} else {
			fmt.Fprint(s, ", with all that the run deleted there")
		}
		fmt.Fprintf(s, ":\n  %s\n", terminal.Printable(command))
	}
}

func printRunsOfTable(s *terminal.Screen, runs []*cleanupv1.ExplainedRun) error {
	if len(runs) == 0 {
		fmt.Fprintln(s, "No known run deleted rows of this table.")
		return nil
	}
	rows := []terminal.Row{{"RUN", "STARTED", "ROWS OF THE TABLE", "TASKS"}}
	for _, r := range runs {
		rows = append(rows,
			terminal.Row{
				r.GetRunId(), format.Time(r.GetStartTime()), humanize.Comma(r.GetRowsDeleted()),
				strings.Join(r.GetTasks(), ", "),
			})
	}
	return s.PrintTable(rows)
}

func describeVerdict(v cleanupv1.Verdict, task string, since *timestamppb.Timestamp, reason string) string {
	text := strings.ToUpper(format.EnumName(v))
	if v == cleanupv1.Verdict_VERDICT_DELETE_LATER {
		text += " from " + format.Time(since)
	}
	if task != "" {
		text += " by the task " + task
	}
	if reason != "" {
		text += ": " + terminal.Printable(reason)
	}
	return text
}

func printTask(w io.Writer, task *cleanupv1.ExplainTaskResponse) {
	fmt.Fprintf(w, "%s, reference time %s\n", task.GetTask(), format.Time(task.GetReferenceTime()))
	if set := task.GetParents(); set != nil {
		rule := terminal.Printable(set.GetRule())
		fmt.Fprintf(w, "\nIt starts with %d rows of %s: %s\n", task.GetParentCount(), set.GetTable(), rule)
		printSQL(w, set)
	}
	for _, statement := range task.GetStatements() {
		partitions := ""
		if statement.GetPartitionCount() > 1 {
			partitions = " in " + strconv.Itoa(int(statement.GetPartitionCount())) + " partitions"
		}
		action := ""
		if statement.GetAction() != cleanupv1.PreviewAction_PREVIEW_ACTION_UNSPECIFIED {
			action = format.EnumName(statement.GetAction()) + " "
		}
		table, rule := terminal.Printable(statement.GetTable()), terminal.Printable(statement.GetRule())
		fmt.Fprintf(w, "\n%s%s%s: %s\n", action, table, partitions, rule)
		printSQL(w, statement)
	}
	if len(task.GetSkips()) > 0 {
		fmt.Fprintln(w, "\nSkipped:")
	}
	for _, skip := range task.GetSkips() {
		fmt.Fprintln(w, "  "+terminal.Printable(skip))
	}
}

func printSQL(w io.Writer, statement *cleanupv1.ExplainedStatement) {
	if statement.GetSql() != "" {
		fmt.Fprintln(w, "  "+terminal.Printable(statement.GetSql()))
	}
	for i, value := range statement.GetParameters() {
		fmt.Fprintf(w, "  $%d = %s\n", i+1, terminal.Printable(value))
	}
	if method := statement.GetScanMethod(); method != cleanupv1.ScanMethod_SCAN_METHOD_UNSPECIFIED {
		found := strings.TrimSpace(format.EnumName(method) + " " + statement.GetIndex())
		fmt.Fprintln(w, "  found by "+terminal.Printable(found))
	}
}
