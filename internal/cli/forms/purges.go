package forms

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/userdata"
)

func newPurges(server *rpc.Server) *cobra.Command {
	var output format.Output
	list := newListPurges(server, &output)
	cmd := &cobra.Command{
		Use:   "purges [list | set | delete]",
		Short: "Show and change the rules that delete old process instances",
		Long: "Show and change the rules that delete process instances of AEM Forms which are complete or\n" +
			"terminated, with their tasks, data and documents. Each rule is a task of runs, forms/NAME: preview\n" +
			"it with `cleanupd run --dry-run --task forms/NAME`.",
		Example: "  cleanupd userdata purges\n  cleanupd userdata purges set old-loans --application Loans " +
			"--date-column complete_time --days 365",
		Args: flags.OnlyCommands,
		RunE: list.RunE,
	}
	cmd.AddCommand(list, newSetPurge(server, &output), newDeletePurge(server))
	output.AddFlag(cmd)
	return cmd
}

func newListPurges(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the rules in the order of their names",
		Example: "  cleanupd userdata purges list -o yaml",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			resp, err := listPurges(cmd.Context(), client)
			if err != nil {
				return err
			}
			return output.Print(cmd.OutOrStdout(), resp, purgesTable(resp.GetPurges()...))
		}),
	}
}

func newSetPurge(server *rpc.Server, output *format.Output) *cobra.Command {
	p := &cleanupv1.FormsPurge{}
	cmd := &cobra.Command{
		Use:   "set NAME --application NAME [--workflow PATH] --date-column COLUMN --days N [--enable]",
		Short: "Create or replace a rule",
		Long: "Create or replace a rule. Without --enable runs skip it, and a dry run that names the task\n" +
			"forms/NAME shows what it would delete: set it again with --enable when that is right.",
		Example: "  cleanupd userdata purges set old-loans --application Loans --date-column complete_time --days 365\n" +
			"  cleanupd run --dry-run --task forms/old-loans\n" +
			"  cleanupd userdata purges set old-loans --application Loans --date-column complete_time --days 365 " +
			"--enable",
		Args:              flags.OneArgument("the name of the rule"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownPurges)),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			etag, err := purgeEtag(cmd, client, args[0])
			if err != nil {
				return err
			}
			p.Name, p.Etag = args[0], etag
			resp, err := client.SetFormsPurge(cmd.Context(), &cleanupv1.SetFormsPurgeRequest{Purge: p})
			if err != nil {
				return rpc.ExplainConflict(err)
			}
			return output.Print(cmd.OutOrStdout(), resp, purgesTable(resp.GetPurge()))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&p.Application, "application", "", "the application of the workflows (required)")
	f.StringVar(&p.Workflow, "workflow", "",
		"the workflow, its full path inside the application: FOLDER/WORKFLOW; empty: all of the application")
	f.StringVar(&p.DateColumn, "date-column", "", "the column of tb_process_instance whose date must be old (required)")
	f.Int32Var(&p.Days, "days", 0, "how many days old, 1 to 24855 (required)")
	f.BoolVar(&p.Enabled, "enable", false, "apply the rule in runs from now on")
	return cmd
}

func newDeletePurge(server *rpc.Server) *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete a rule; data that it has deleted is not restored",
		Example:           "  cleanupd userdata purges delete old-loans",
		Args:              flags.OneArgument("the name of the rule, as in cleanupd userdata purges"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownPurges)),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			etag, err := purgeEtag(cmd, client, args[0])
			if err != nil {
				return err
			}
			req := &cleanupv1.DeleteFormsPurgeRequest{Name: args[0], Etag: etag}
			if _, err := client.DeleteFormsPurge(cmd.Context(), req); err != nil {
				return rpc.ExplainConflict(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The rule %s is deleted.\n", args[0])
			return nil
		}),
	}
}

func listPurges(ctx context.Context, client cleanupd.Client) (*cleanupv1.ListFormsPurgesResponse, error) {
	return rpc.ListAll(func(token string) (*cleanupv1.ListFormsPurgesResponse, error) {
		return client.ListFormsPurges(ctx, &cleanupv1.ListFormsPurgesRequest{PageToken: token})
	})
}

// purgeEtag returns "" if the rule does not exist.
func purgeEtag(cmd *cobra.Command, client cleanupd.Client, name string) (string, error) {
	list, err := listPurges(cmd.Context(), client)
	for _, p := range list.GetPurges() {
		if p.GetName() == name {
			return p.GetEtag(), nil
		}
	}
	return "", err
}

func purgesTable(purges ...*cleanupv1.FormsPurge) []terminal.Row {
	rows := []terminal.Row{{"TASK", "ENABLED", "OLDER THAN", "BY", "APPLICATION", "WORKFLOW"}}
	for _, p := range purges {
		enabled := "no"
		if p.GetEnabled() {
			enabled = "yes"
		}
		rows = append(rows, terminal.Row{
			userdata.TaskPrefix + p.GetName(),
			enabled,
			fmt.Sprintf("%d days", p.GetDays()),
			p.GetDateColumn(),
			p.GetApplication(),
			cmp.Or(p.GetWorkflow(), "all"),
		})
	}
	return rows
}
