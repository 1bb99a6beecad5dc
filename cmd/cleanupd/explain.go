package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

func newExplain() *cobra.Command {
	var (
		server target
		output format
	)
	cmd := &cobra.Command{
		Use:   "explain TASK",
		Short: "Show what a task would do here and now: its statements, and what it skips and why",
		Long: "Show what a task would do here and now: the SQL with its parameters, how rows are found, and what is skipped and\n" +
			"why. Nothing is changed or locked. What the tasks before it would change is not taken into account: run --dry-run does.",
		Example: "  cleanupd explain delivery-logs\n  cleanupd explain deliveries -o json | jq -r '.statements[].sql'",
		Args:    one("the name of one task, as in cleanupd tasks"),
		RunE: withClient(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
			out, err := client.ExplainTask(cmd.Context(), &cleanupv1.ExplainTaskRequest{Task: args[0]})
			if err != nil {
				return err
			}
			if output != asTable {
				return output.print(cmd.OutOrStdout(), out, nil)
			}
			screenOf(cmd.OutOrStdout()).printExplanation(out)
			return nil
		}),
	}
	server.flags(cmd)
	output.flag(cmd)
	return cmd
}

// printExplanation prints what a task would do.
func (s *screen) printExplanation(e *cleanupv1.ExplainTaskResponse) {
	fmt.Fprintf(s, "%s, by the clock %s\n", e.GetTask(), e.GetReferenceTime().AsTime().Format(time.RFC3339))
	if set := e.GetSet(); set != nil {
		fmt.Fprintf(s, "\nIt begins with %d rows of %s: %s\n", e.GetSetRows(), set.GetTable(), printable(set.GetRule()))
		s.printSQL(set)
	}
	for _, told := range e.GetStatements() {
		in := ""
		if told.GetPartitions() > 1 {
			in = " in " + strconv.Itoa(int(told.GetPartitions())) + " partitions"
		}
		fmt.Fprintf(s, "\n%s %s%s: %s\n", word(told.GetAction()), printable(told.GetTable()), in, printable(told.GetRule()))
		s.printSQL(told)
	}
	if len(e.GetSkips()) > 0 {
		fmt.Fprintln(s, "\nSkipped:")
	}
	for _, why := range e.GetSkips() {
		fmt.Fprintln(s, "  "+printable(why))
	}
}

// printSQL prints a statement with its parameters, and how its rows are found.
func (s *screen) printSQL(told *cleanupv1.ExplainedStatement) {
	if told.GetSql() != "" {
		fmt.Fprintln(s, "  "+printable(told.GetSql()))
	}
	for i, value := range told.GetParameters() {
		fmt.Fprintf(s, "  $%d = %s\n", i+1, printable(value))
	}
	if told.GetWay() != "" {
		fmt.Fprintln(s, "  found by "+printable(told.GetWay()))
	}
}
