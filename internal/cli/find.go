package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// variablesFlag adds the flag that names variables of workflows to search.
func variablesFlag(f *pflag.FlagSet, given *[]string) {
	f.StringArrayVar(
		given,
		"variable",
		nil,
		"APPLICATION/WORKFLOW or APPLICATION/WORKFLOW:VARIABLE: look for the user id there, too; WORKFLOW includes "+
			"its folders; may be repeated",
	)
}

// parseVariables reads the flag.
func parseVariables(given []string) (list []*cleanupv1.WorkflowVariable, err error) {
	for _, text := range given {
		path, variable, _ := strings.Cut(text, ":")
		application, workflow, ok := strings.Cut(path, "/")
		if !ok || application == "" || workflow == "" {
			return nil, flags.Errorf(
				"--variable is APPLICATION/WORKFLOW or APPLICATION/WORKFLOW:VARIABLE, not %q",
				text,
			)
		}
		list = append(
			list,
			&cleanupv1.WorkflowVariable{Application: application, Workflow: workflow, Variable: variable},
		)
	}
	return list, nil
}

func newFind(server *rpc.Server) *cobra.Command {
	var (
		variables []string
		output    format.Output
	)
	cmd := &cobra.Command{
		Use:   "find USER",
		Short: "Find every trace of a user id that the Forms database reveals",
		Example: "  cleanupd userdata find bob.smith@example.com\n  cleanupd userdata find bob.smith@example.com " +
			"--variable Loans/folder/sub/review --variable Claims/apply",
		Args: flags.OneArgument("the user id, a principal's canonical name"),
		RunE: rpc.WithUserData(
			server,
			func(cmd *cobra.Command, client cleanupv1.UserDataServiceClient, args []string) error {
				list, err := parseVariables(variables)
				if err != nil {
					return err
				}
				found, err := client.FindUserData(
					cmd.Context(),
					&cleanupv1.FindUserDataRequest{UserId: args[0], Variables: list},
				)
				if err != nil {
					return err
				}
				if output != format.Table {
					return output.Print(cmd.OutOrStdout(), found, nil)
				}
				return printFound(terminal.ScreenOf(cmd.OutOrStdout()), found)
			},
		),
	}
	output.AddFlag(cmd)
	variablesFlag(cmd.Flags(), &variables)
	return cmd
}

// printFound prints what was found, and what cannot be.
func printFound(s *terminal.Screen, found *cleanupv1.FindUserDataResponse) error {
	fmt.Fprintf(s, "Principals: %s\n", joinOrNone(found.GetPrincipalIds()))
	rows := []terminal.Row{{"PROCESS INSTANCE", "STATUS", "INVOCATION", "WHY"}}
	for _, in := range found.GetProcessInstances() {
		var why []string
		for _, r := range in.GetReasons() {
			text := format.EnumName(r.GetKind())
			if v := r.GetVariable(); v != nil {
				text += fmt.Sprintf(
					" %s of %s/%s (%s)",
					v.GetVariable(),
					v.GetApplication(),
					v.GetWorkflow(),
					format.EnumName(r.GetMatch()),
				)
			}
			why = append(why, text)
		}
		rows = append(
			rows,
			terminal.Row{in.GetId(), statusName(in), in.GetLongLivedInvocationId(), strings.Join(why, ", ")},
		)
	}
	if len(rows) > 1 {
		fmt.Fprintln(s)
		if err := s.PrintTable(rows); err != nil {
			return err
		}
	}
	fmt.Fprintf(s, "\nOrphan tasks: %s\n", joinOrNone(found.GetOrphanTaskIds()))
	for _, what := range found.GetNotSearched() {
		fmt.Fprintf(s, "Not searched: %s\n", what)
	}
	for _, what := range found.GetBlindSpots() {
		fmt.Fprintf(s, "Can not be found: %s\n", what)
	}
	return nil
}

func statusName(in *cleanupv1.ProcessInstance) string {
	switch {
	case in.GetLongLivedInvocationId() == "" && in.GetStatus() == 0:
		return "gone"
	case in.GetStatus() == 2:
		return "complete"
	case in.GetStatus() == 4:
		return "terminated"
	}
	return "running"
}
