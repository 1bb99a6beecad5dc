package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

func NewMigrate() *cobra.Command {
	var (
		url, formsURL string
		published     bool
	)
	cmd := &cobra.Command{
		Use:   "migrate [--database-url URL] [--forms-database-url URL]",
		Short: "Create or update the service's own schema cleanupd",
		Long: "Create or update the service's own schema cleanupd in the database that it cleans.\n" +
			"serve does this by itself if its role has CREATE on the database. If another role is to own the schema,\n" +
			"run this as that one, then grant serve's role USAGE on the schema and SELECT, INSERT, UPDATE, DELETE on\n" +
			"its tables.\n" +
			"With --forms-database-url create the service's own tables in an AEM Forms database, alone or in " +
			"addition:\nin the schema cleanupd of PostgreSQL, with the prefix cleanupd_ in MySQL.",
		Example: "  cleanupd migrate --database-url postgres://cleanupd@db.example/shop",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			formsDatabase, err := (&FormsConfig{DatabaseURL: formsURL}).check()
			if err != nil {
				return err
			}
			if url != "" || formsDatabase == nil {
				config, err := flags.DatabaseURL("--database-url", url)
				if err != nil {
					return err
				}
				if _, err := migrateDatabase(cmd.Context(), config, published); err != nil {
					return err
				}
			}
			if formsDatabase != nil {
				database, err := formsDatabase.open(cmd.Context(), nil, nil, published)
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
	addPublished(f, &published)
	flags.AddSettingsFile(f)
	return cmd
}

func addPublished(f *pflag.FlagSet, published *bool) {
	f.BoolVar(published, "allow-published-schema", false,
		"create and update the schema cleanupd although a publication has it, such as one FOR ALL TABLES: each "+
			"subscriber has the tables already (cleanupd schema)")
}

func NewSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the SQL that creates the schema cleanupd, for subscribers",
		Long: "Print the SQL that creates the schema cleanupd of this version, without rows.\n" +
			"A publication FOR ALL TABLES publishes the schema, and a subscriber without its tables stops. So serve and\n" +
			"migrate create nothing in such a database. Run this at each subscriber first, then start serve or migrate\n" +
			"with --allow-published-schema. Before an update, drop the schema there, and create it again.",
		Example: "  cleanupd schema | psql postgres://postgres@subscriber.example/shop",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := "CREATE SCHEMA cleanupd;\n\n"
			for _, part := range []func() (string, error){store.SchemaSQL, userdata.SchemaSQL} {
				sql, err := part()
				if err != nil {
					return err
				}
				text += sql
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), text, forms.SchemaSQL())
			return err
		},
	}
}

// maxInstanceLength is in characters.
const maxInstanceLength = 64

func NewAdopt() *cobra.Command {
	var (
		url, name string
		yes       bool
		published bool
	)
	cmd := &cobra.Command{
		Use:   "adopt --database-url URL --instance NAME",
		Short: "Make this service the owner of a database",
		Long: "Make this service the owner of a database: of a restored or copied one, or of one that was moved.\n" +
			"A database stores the name of the service that cleans it, the server's system identifier and its\n" +
			"own oid. A service that finds others there serves reads and dry runs, and changes nothing. This\n" +
			"command stores the current ones, ends active runs, and disables the schedule. Restart the service\n" +
			"afterwards if it needs its mid-sourcing and Forms servers.",
		Example: "  cleanupd adopt --database-url postgres://cleanupd@test.example/shop --instance test",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := flags.DatabaseURL("--database-url", url)
			if err = errors.Join(err, checkInstance(name)); err != nil {
				return err
			}
			if !yes && !terminal.CanAsk() {
				return flags.Errorf("adopting needs confirmation, and there is no terminal to ask on: give --yes")
			}
			return adopt(cmd, config, name, yes, published)
		},
	}
	f := cmd.Flags()
	flags.AddSettingsFile(f)
	flags.AddDatabaseURL(f, &url)
	f.StringVar(&name, "instance", "", "the name of this service, up to 64 characters; empty: it has none")
	f.BoolVar(&yes, "yes", false, "do not ask")
	addPublished(f, &published)
	return cmd
}

func adopt(cmd *cobra.Command, config *pgxpool.Config, name string, yes, published bool) error {
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	if _, err := migrateDatabase(ctx, config, published); err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	changes, err := store.PreviewAdoption(ctx, pool, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Belongs to: %s\nWill belong to: %s\n", changes.From, changes.To)
	for _, id := range changes.Runs {
		fmt.Fprintf(w, "Run %s will end.\n", id)
	}
	if changes.Scheduled {
		fmt.Fprintln(w, "The schedule will be disabled.")
	}
	if !yes && !terminal.Confirm(cmd, "Adopt this database?") {
		return errors.New("nothing was changed")
	}
	manager := runs.New(runs.Config{Pool: pool, Instance: name, Log: slog.New(slog.DiscardHandler)})
	if err := manager.Adopt(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, "The database is adopted.")
	return err
}

func checkInstance(name string) error {
	if len([]rune(name)) > maxInstanceLength || strings.TrimSpace(name) != name || terminal.Printable(name) != name {
		return flags.Errorf("--instance must be at most %d printable characters, without blanks around them",
			maxInstanceLength)
	}
	return nil
}
