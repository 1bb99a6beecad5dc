package serve

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/flags"
)

// NewMigrate returns the command migrate.
func NewMigrate() *cobra.Command {
	var url, formsURL string
	cmd := &cobra.Command{
		Use:   "migrate [--database-url URL] [--forms-database-url URL]",
		Short: "Create or update the service's own schema cleanupd",
		Long: "Create or update the service's own schema cleanupd in the database that it cleans.\n" +
			"serve does this by itself if its role may; otherwise run this as the database's owner,\n" +
			"then grant serve's role USAGE on the schema and SELECT, INSERT, UPDATE, DELETE on its tables.\n" +
			"With --forms-database-url create the service's own tables in an AEM Forms database, alone or in " +
			"addition:\nin the schema cleanupd of PostgreSQL, with the prefix cleanupd_ in MySQL.",
		Example: "  cleanupd migrate --database-url postgres://neolane@db.example/campaign",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			forms, err := (&FormsConfig{DatabaseURL: formsURL}).check()
			if err != nil {
				return err
			}
			if url != "" || forms == nil {
				config, err := flags.DatabaseURL("--database-url", url)
				if err != nil {
					return err
				}
				if err := migrateDatabase(cmd.Context(), config); err != nil {
					return err
				}
			}
			if forms != nil {
				database, err := forms.open(cmd.Context(), nil, nil)
				if err != nil {
					return err
				}
				database.Forms.Close()
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "The schema cleanupd is up to date.")
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&url, "database-url", "",
		"the database to clean: postgres://USER@HOST/DATABASE (required without --forms-database-url); the password "+
			"is in it, or in the file that ?passfile= or PGPASSFILE names")
	f.StringVar(&formsURL, "forms-database-url", "",
		"the database of an AEM Forms server, in which user data is found and erased: mysql://USER@HOST/DATABASE or "+
			"postgres://USER@HOST/DATABASE")
	return cmd
}
