// Package forms has the command userdata: it finds and erases one person's data in AEM Forms, shows the receipts of
// erasures, and changes the rules that delete old process instances. It needs a server with a Forms database. Package
// main offers the command, and the demo runs it.
package forms

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

func NewCommand() *cobra.Command {
	var server rpc.Server
	cmd := &cobra.Command{
		Use:   "userdata",
		Short: "Find and erase one person's data in AEM Forms",
		Example: "  cleanupd userdata find bob.smith@example.com\n  cleanupd userdata erase bob.smith@example.com\n  " +
			"cleanupd userdata sweep --dry-run\n  cleanupd userdata receipts",
		Args: flags.OnlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	server.AddFlags(cmd)
	cmd.AddCommand(newFind(&server), newErase(&server), newVerify(&server), newSweep(&server), newReceipt(&server),
		newReceipts(&server), newPurges(&server))
	return cmd
}

// addVariablesFlag adds the flag for variables of workflows that may hold the user id.
func addVariablesFlag(f *pflag.FlagSet, variables *[]string) {
	f.StringArrayVar(variables, "variable", nil,
		"APPLICATION/WORKFLOW or APPLICATION/WORKFLOW:VARIABLE: also look for the user id there; WORKFLOW includes "+
			"its folders; may be repeated")
}

func parseVariables(values []string) (variables []*cleanupv1.WorkflowVariable, err error) {
	for _, value := range values {
		path, variable, _ := strings.Cut(value, ":")
		application, workflow, ok := strings.Cut(path, "/")
		if !ok || application == "" || workflow == "" {
			return nil, flags.Errorf("--variable must be APPLICATION/WORKFLOW or APPLICATION/WORKFLOW:VARIABLE, not %q",
				value)
		}
		variables = append(variables, &cleanupv1.WorkflowVariable{
			Application: application,
			Workflow:    workflow,
			Variable:    variable,
		})
	}
	return variables, nil
}

// addPrincipalsFlag adds the flag that chooses among several principals with the same user id.
func addPrincipalsFlag(f *pflag.FlagSet, ids *[]string) {
	f.StringArrayVar(ids, "principal", nil, "which principal of the user id is meant; may be repeated")
}

func joinOrNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// maxCompletions is how many of the newest receipts are offered.
const maxCompletions = 50

func knownReceipts(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
	resp, err := client.ListReceipts(ctx, &cleanupv1.ListReceiptsRequest{PageSize: maxCompletions})
	for _, r := range resp.GetReceipts() {
		list = append(list, cobra.CompletionWithDesc(r.GetId(), format.Time(r.GetEndTime())+" by "+r.GetRequestedBy()))
	}
	return list, err
}

func knownPurges(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
	resp, err := listPurges(ctx, client)
	for _, p := range resp.GetPurges() {
		about := fmt.Sprintf("%s, older than %d days by %s", p.GetApplication(), p.GetDays(), p.GetDateColumn())
		list = append(list, cobra.CompletionWithDesc(p.GetName(), about))
	}
	return list, err
}
