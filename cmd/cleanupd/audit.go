package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/service/audit"
)

func newAudit() *cobra.Command {
	var (
		url    string
		since  time.Duration
		limit  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "audit --database-url URL",
		Short: "List who did what, from the database that is cleaned",
		Long: "List the calls that changed something, or tried to, and those that searched for a person: who made them, with\n" +
			"which role, from where, and how they ended. The service appends them to cleanupd.audit and never deletes them.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := parseDatabaseURL("--database-url", url)
			if err != nil {
				return err
			}
			if since <= 0 || limit < 1 {
				return usagef("--since must be greater than 0, and --limit 1 or more")
			}
			conn, err := pgx.ConnectConfig(cmd.Context(), config.ConnConfig)
			if err != nil {
				return fmt.Errorf("cannot connect to the database: %w", err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(cmd.Context())) }()
			listed := 0
			list := func(each func(audit.Entry) error) error {
				return audit.List(cmd.Context(), conn, time.Now().Add(-since), limit, func(e audit.Entry) error {
					listed++
					return each(e)
				})
			}
			if asJSON {
				err = list(func(e audit.Entry) error {
					line, err := json.Marshal(e)
					fmt.Fprintln(cmd.OutOrStdout(), printableJSON(line))
					return err
				})
			} else {
				err = printAudit(cmd.OutOrStdout(), list)
			}
			if listed == limit {
				fmt.Fprintln(cmd.ErrOrStderr(), "There may be more: --limit says how many are listed.")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&url, "database-url", "", "the database to clean: postgres://USER@HOST/DATABASE (required); the password is in it, or in the file that ?passfile= or PGPASSFILE names")
	f.DurationVar(&since, "since", 30*24*time.Hour, "how far to look back; 30 days by default")
	f.IntVar(&limit, "limit", 1000, "how many of the newest entries to list at most, 1 or more")
	f.BoolVar(&asJSON, "json", false, "write one JSON object per line instead of a table")
	return cmd
}

// printAudit prints what is listed, as a table.
func printAudit(w io.Writer, list func(each func(audit.Entry) error) error) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tWHO\tROLE\tFROM\tWHAT\tRESULT\tDETAILS")
	if err := list(func(e audit.Entry) error {
		details, err := json.Marshal(e.Details)
		fmt.Fprint(table, e.Time.UTC().Format(time.RFC3339))
		for _, text := range []string{e.Subject, e.Role, e.Address, e.RPC, e.Result, string(details)} {
			fmt.Fprint(table, "\t", printable(text))
		}
		fmt.Fprintln(table)
		return err
	}); err != nil {
		return err
	}
	return table.Flush()
}
