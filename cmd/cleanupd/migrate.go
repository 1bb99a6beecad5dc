package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newMigrate() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "migrate --database-url URL",
		Short: "Create or update the service's own schema cleanupd",
		Long: "Create or update the service's own schema cleanupd in the database that it cleans.\n" +
			"serve does it by itself when its role may; otherwise run this as the database's owner,\n" +
			"then grant serve's role USAGE on the schema and SELECT, INSERT, UPDATE, DELETE on its tables.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := parseDatabaseURL(url)
			if err != nil {
				return err
			}
			if err := migrateDatabase(cmd.Context(), config); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "The schema cleanupd is up to date.")
			return err
		},
	}
	cmd.Flags().StringVar(&url, "database-url", "", "the database to clean: postgres://USER:PASSWORD@HOST/DATABASE (required)")
	return cmd
}
