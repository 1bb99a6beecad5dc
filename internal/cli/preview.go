package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/policies"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

func NewPreview() *cobra.Command {
	var (
		url, file string
		look      = service.Look{Profile: runs.ProfileAuto}
		ages      policies.Ages
		output    format.Output
		all       bool
	)
	cmd := &cobra.Command{
		Use:   "preview --database-url URL",
		Short: "Show what a run would delete from a database, and leave nothing behind",
		Long: "Show what a run would delete from a database, without a server, and leave nothing behind: no schema,\n" +
			"no table, no lock but those of reading. It needs the right to read the tables, and works on a hot\n" +
			"standby. It shows which rights a run would need, and what guards would refuse.\n" +
			"Policies, holds and guards take part if a server has stored some in the database and the role may read\n" +
			"them. If there is nothing to do, it counts what suggested policies would delete: rows older than a year.",
		Example: "  cleanupd preview --database-url postgres://me@db.example/shop\n" +
			"  cleanupd preview --database-url postgres://me@db.example/shop --older-than sessions.created_at=90d\n" +
			"  cleanupd preview --database-url postgres://me@db.example/shop --policies policies.yaml -o json | " +
			"jq .grants",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				var err error
				if look.Policies, err = policies.ReadFile(cmd, file); err != nil {
					return err
				}
			}
			for _, p := range ages {
				look.Policies = append(look.Policies, p.Policy)
				look.Tasks = append(look.Tasks, policy.Prefix+p.GetName())
			}
			printer := watch.NewPrinter(output, cmd, &rpc.Server{}, all)
			look.Event = func(e *cleanupv1.RunEvent) error {
				if output != format.Table {
					return nil
				}
				return printer.Event(e)
			}
			var found service.Looked
			err := policies.LookAt(cmd.Context(), url, look, func(look service.Look, ctx context.Context) (err error) {
				found, err = look.Do(ctx)
				return err
			})
			if err != nil {
				return err
			}
			policies.WarnOfEveryRow(cmd, look.Policies)
			if output != format.Table {
				err = printLooked(cmd, output, found)
			} else {
				err = showLooked(cmd, url, found, all)
			}
			if found.Run.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED {
				err = errors.Join(err, errors.New(found.Run.GetError()))
			}
			return err
		},
	}
	f := cmd.Flags()
	flags.AddDatabaseURL(f, &url)
	f.StringVar(&file, "policies", "", "a file with policies, as for cleanupd policies apply; - is the standard input")
	policies.AddAgesFlag(f, &ages)
	f.StringArrayVar(&look.Tasks, "task", nil, "preview this task; may be repeated (default all)")
	f.Var(&look.Profile, "profile", "which tasks the database has: auto, campaign or none, as for cleanupd serve")
	flags.DurationVar(f, &look.Undo, "undo", 0,
		"show what the trash would need, and what could not be undone, if a run kept what it deletes for this time")
	watch.AddAllFlag(f, &all)
	output.AddFlag(cmd)
	flags.WithoutVariable(f, "policies", "task", "undo")
	return cmd
}

// printLooked prints one object: the run as the API has it, the suggested policies, and the rights that are missing.
func printLooked(cmd *cobra.Command, output format.Output, found service.Looked) error {
	marshal := protojson.MarshalOptions{EmitDefaultValues: true}
	run, err := marshal.Marshal(found.Run)
	if err != nil {
		return err
	}
	suggested := []json.RawMessage{}
	for _, p := range found.Suggested {
		text, err := marshal.Marshal(p)
		if err != nil {
			return err
		}
		suggested = append(suggested, text)
	}
	text, err := json.Marshal(map[string]any{
		"run": json.RawMessage(run), "suggestedPolicies": suggested,
		"grants": append([]string{}, found.Grants...), "leftOut": append([]string{}, found.LeftOut...),
		"grantsToRead": append([]string{}, found.GrantsToRead...),
	})
	if err != nil {
		return err
	}
	return output.PrintLine(cmd.OutOrStdout(), []byte(terminal.PrintableJSON(text)))
}

func showLooked(cmd *cobra.Command, url string, found service.Looked, all bool) error {
	screen := terminal.ScreenOf(cmd.OutOrStdout())
	if len(found.Run.GetResults()) > 0 || len(found.LeftOut) == 0 {
		if err := watch.PrintFound(screen, found.Run, all); err != nil {
			return err
		}
	}
	printGrants := func(title string, grants []string) {
		if len(grants) > 0 {
			fmt.Fprintln(screen, screen.Wrap("\n"+title, 0))
		}
		for _, g := range grants {
			fmt.Fprintln(screen, terminal.Printable(g)+";")
		}
	}
	printGrants("For a run the role lacks these rights:", found.Grants)
	printGrants(fmt.Sprintf("Left out, since the role may not read them or tables that refer to them: %s. To count their "+
		"rows, too, it lacks these rights:", terminal.Printable(strings.Join(found.LeftOut, ", "))), found.GrantsToRead)
	if found.StoredHidden {
		fmt.Fprintln(screen, screen.Wrap("\nStored policies are not shown, since the role may not read the schema cleanupd: "+
			"connect as the role of the service, or let that role GRANT USAGE ON SCHEMA cleanupd and SELECT ON ALL TABLES IN "+
			"SCHEMA cleanupd.", 0))
	}
	database := "--database-url " + format.ShellWord(rpc.WithoutPassword(url))
	const suggested = "The figures are those of suggested policies: rows older than a year, or expired, by the column " +
		"whose name fits best."
	switch {
	case len(found.Suggested) > 0 && found.StoredHidden:
		fmt.Fprintln(screen, screen.Wrap(suggested, 0))
	case len(found.Suggested) > 0:
		fmt.Fprintln(screen, screen.Wrap("\nNo policy is stored, so a run would delete nothing yet. "+suggested+
			" To delete such rows, which asks first:", 0))
		age := format.ShellWord(terminal.Printable(policies.AgeOf(found.Example)))
		fmt.Fprintf(screen, "  cleanupd run --older-than %s %s\n", age, database)
		fmt.Fprintf(screen, "All suggestions as a file: cleanupd tables --suggest %s\n", database)
	case len(found.Run.GetResults()) == 0 && len(found.LeftOut) == 0 && !found.StoredHidden:
		fmt.Fprintln(screen, screen.Wrap(
			"There is nothing to look at: no policy is stored, and no table has a date by which rows could be old. "+
				"--policies FILE previews policies.", 0))
	}
	fmt.Fprintln(screen, "Nothing was changed, and nothing was stored.")
	return nil
}
