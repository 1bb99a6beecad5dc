package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

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
