package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs"
)

// longestInstance is how many characters the name of an instance may have.
const maxInstanceLength = 64

func NewAdopt() *cobra.Command {
	var (
		url, instance string
		yes           bool
	)
	cmd := &cobra.Command{
		Use:   "adopt --database-url URL --instance NAME",
		Short: "Make a database that of this service",
		Long: "Make a database that of this service: a restored or copied one, or one that was moved.\n" +
			"A database keeps the name of the service that cleans it, the server's system identifier and its own " +
			"oid. A service that finds\n" +
			"others serves reads and dry runs, and changes nothing. This stores what is now, ends active runs, and " +
			"disables the schedule.\nRestart the service afterwards if it is to reach mid-sourcing and Forms servers.",
		Example: "  cleanupd adopt --database-url postgres://neolane@test.example/campaign --instance test",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := flags.DatabaseURL("--database-url", url)
			if err = errors.Join(err, checkInstance(instance)); err != nil {
				return err
			}
			if !yes && !term.IsTerminal(int(os.Stdin.Fd())) {
				return flags.Errorf("there is nobody to ask whether to adopt the database: give --yes")
			}
			ctx := cmd.Context()
			if err := migrateDatabase(ctx, config); err != nil {
				return err
			}
			pool, err := pgxpool.NewWithConfig(ctx, config)
			if err != nil {
				return err
			}
			defer pool.Close()
			a, err := runs.Adopting(ctx, pool, instance)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "It belongs to: %s\nIt will belong to: %s\n", a.From, a.To)
			for _, id := range a.Runs {
				fmt.Fprintf(w, "Run %s ends.\n", id)
			}
			if a.Scheduled {
				fmt.Fprintln(w, "The schedule is disabled.")
			}
			if !yes && !terminal.Confirm(cmd, "Adopt this database?") {
				return errors.New("nothing was changed")
			}
			if err := runs.New(runs.Config{Pool: pool, Instance: instance, Log: slog.New(slog.DiscardHandler)}).
				Adopt(ctx); err != nil {
				return err
			}
			_, err = fmt.Fprintln(w, "Adopted.")
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(
		&url,
		"database-url",
		"",
		"the database to clean: postgres://USER@HOST/DATABASE (required); the password is in it, or in the file that "+
			"?passfile= or PGPASSFILE names",
	)
	f.StringVar(&instance, "instance", "", "the name of this service, up to 64 characters; empty: it has none")
	f.BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// checkInstance refuses what is no name of an instance.
func checkInstance(name string) error {
	if len([]rune(name)) > maxInstanceLength || strings.TrimSpace(name) != name || terminal.Printable(name) != name {
		return flags.Errorf(
			"--instance must be %d characters at most that can be printed, without blanks around them",
			maxInstanceLength,
		)
	}
	return nil
}
