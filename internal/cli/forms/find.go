package forms

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

func newFind(server *rpc.Server) *cobra.Command {
	var (
		variables []string
		output    format.Output
	)
	cmd := &cobra.Command{
		Use:   "find USER",
		Short: "Find the data of a user id in the Forms database",
		Example: "  cleanupd userdata find bob.smith@example.com\n  cleanupd userdata find bob.smith@example.com " +
			"--variable Loans/folder/sub/review --variable Claims/apply",
		Args: flags.OneArgument("the user id, a principal's canonical name"),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			list, err := parseVariables(variables)
			if err != nil {
				return err
			}
			req := &cleanupv1.FindUserDataRequest{UserId: args[0], Variables: list}
			found, err := client.FindUserData(cmd.Context(), req)
			if err != nil {
				return err
			}
			if output != format.Table {
				return output.Print(cmd.OutOrStdout(), found, nil)
			}
			return printFound(terminal.ScreenOf(cmd.OutOrStdout()), found)
		}),
	}
	output.AddFlag(cmd)
	addVariablesFlag(cmd.Flags(), &variables)
	return cmd
}

// printFound also prints which places were not or cannot be searched.
func printFound(s *terminal.Screen, found *cleanupv1.FindUserDataResponse) error {
	fmt.Fprintf(s, "Principals: %s\n", joinOrNone(found.GetPrincipalIds()))
	rows := []terminal.Row{{"PROCESS INSTANCE", "STATUS", "INVOCATION", "WHY"}}
	for _, p := range found.GetProcessInstances() {
		var reasons []string
		for _, r := range p.GetReasons() {
			reason := format.EnumName(r.GetKind())
			if v := r.GetVariable(); v != nil {
				match := format.EnumName(r.GetMatch())
				reason += fmt.Sprintf(" %s of %s/%s (%s)", v.GetVariable(), v.GetApplication(), v.GetWorkflow(), match)
			}
			reasons = append(reasons, reason)
		}
		rows = append(rows,
			terminal.Row{p.GetId(), statusName(p), p.GetLongLivedInvocationId(), strings.Join(reasons, ", ")})
	}
	if len(rows) > 1 {
		fmt.Fprintln(s)
		if err := s.PrintTable(rows); err != nil {
			return err
		}
	}
	fmt.Fprintf(s, "\nOrphan tasks: %s\n", joinOrNone(found.GetOrphanTaskIds()))
	for _, text := range found.GetNotSearched() {
		fmt.Fprintf(s, "Not searched: %s\n", text)
	}
	for _, text := range found.GetBlindSpots() {
		fmt.Fprintf(s, "Cannot be found: %s\n", text)
	}
	return nil
}

// statusName returns "gone" if only data that refers to the process instance is left.
func statusName(p *cleanupv1.ProcessInstance) string {
	switch {
	case p.GetLongLivedInvocationId() == "" && p.GetStatus() == 0:
		return "gone"
	case p.GetStatus() == 2:
		return "complete"
	case p.GetStatus() == 4:
		return "terminated"
	}
	return "running"
}
