package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/audit"
)

// NewAudit returns the command audit.
func NewAudit() *cobra.Command {
	var (
		url    string
		since  time.Duration
		limit  int32
		asJSON bool
		output format.Output
	)
	cmd := &cobra.Command{
		Use:   "audit --database-url URL",
		Short: "List who did what, from the database that is cleaned",
		Long: "List the calls that changed something, or tried to, or searched for a person: who made them, with\n" +
			"which role, from where, and how they ended. The service appends them to cleanupd.audit and never " +
			"deletes them.",
		Example: "  cleanupd audit --database-url postgres://neolane@db.example/campaign --since 24h\n  cleanupd " +
			"audit -o json | jq 'select(.result != \"OK\")'",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := flags.DatabaseURL("--database-url", url)
			if err != nil {
				return err
			}
			if since <= 0 || limit < 1 {
				return flags.Errorf("--since must be greater than 0, and --limit 1 or more")
			}
			if asJSON {
				output = "json"
			}
			return printAudit(cmd, config, output, time.Now().Add(-since), int(limit))
		},
	}
	f := cmd.Flags()
	flags.AddDatabaseURL(f, &url)
	f.DurationVar(&since, "since", 30*24*time.Hour, "how far to look back; 30 days by default")
	f.Int32Var(&limit, "limit", 1000, "how many of the newest to list at most, 1 or more")
	f.BoolVar(&asJSON, "json", false, "the same as --output json")
	_ = f.MarkHidden("json") // it fails only for an unknown flag
	output.AddFlag(cmd)
	return cmd
}

// printAudit connects to the database, and prints the newest entries of its audit.
func printAudit(cmd *cobra.Command, config *pgxpool.Config, output format.Output, since time.Time, limit int) error {
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	conn, err := connection.Connect(ctx, config)
	if err != nil {
		return fmt.Errorf("cannot connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows := []terminal.Row{{"TIME", "WHO", "ROLE", "FROM", "WHAT", "RESULT", "DETAILS"}}
	listed := 0
	err = audit.List(ctx, conn, since, limit, func(e audit.Entry) error {
		listed++
		if output != format.Table {
			line, err := json.Marshal(e)
			return errors.Join(err, output.PrintLine(w, []byte(terminal.PrintableJSON(line))))
		}
		details, err := json.Marshal(e.Details)
		rows = append(rows, terminal.Row{
			e.Time.UTC().Format(time.RFC3339),
			e.Subject,
			e.Role,
			e.Address,
			e.RPC,
			e.Result,
			string(details),
		})
		return err
	})
	if err == nil && output == format.Table {
		err = terminal.ScreenOf(w).PrintTable(rows)
	}
	if listed == limit {
		fmt.Fprintln(cmd.ErrOrStderr(), "There may be more entries: a higher --limit lists them.")
	}
	return err
}
