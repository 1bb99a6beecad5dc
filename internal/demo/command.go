package demo

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs"
)

type config struct {
	rows                   int
	profile                runs.Profile
	keep, forms            bool
	formsEngine            string
	grpcListen, httpListen string // empty means that an address is chosen
}

func NewCommand() *cobra.Command {
	c := config{profile: runs.ProfileAuto}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Clean a private database with invented data, and show what was deleted",
		Long: "Start a private PostgreSQL, fill a Campaign database with rows on both sides of every rule, serve\n" +
			"it, run the cleanup, and print how many rows were deleted. With --keep serve it without a cleanup,\n" +
			"and suggest commands to try.\n" +
			"With --profile none use the database of a shop instead, which has nothing to do with Campaign: set\n" +
			"policies, preview them, and run exactly that; with --keep only set them.\n" +
			"With --forms use an AEM Forms database and its document storage instead, and find and erase one\n" +
			"person's data; with --forms-engine mysql on a private MariaDB, which must be installed.\n" +
			"The demo removes everything at its end. PostgreSQL is downloaded into the user's cache if it is\n" +
			"not installed.",
		Example: "  cleanupd demo\n  cleanupd demo --rows 1000000\n  cleanupd demo --keep\n  cleanupd demo --profile none\n" +
			"  cleanupd demo --forms --keep\n  cleanupd demo --forms --forms-engine mysql",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(); err != nil {
				return err
			}
			// Without this, a write to a closed pipe would end the process before the demo removes its files.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			out := terminal.ScreenOf(cmd.OutOrStdout())
			out.Writer = &cancellingWriter{out.Writer, cancel}
			return run(ctx, out, cmd.InOrStdin(), c)
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.rows, "rows", 200_000, "approximately how many rows to create in a Campaign database")
	f.Var(&c.profile, "profile",
		"none: the database of a shop, which policies clean, always with the same rows; campaign or auto: a Campaign "+
			"database")
	flags.WithoutVariable(f, "profile") // the flag of serve is about another database
	f.BoolVar(&c.forms, "forms", false, "find and erase user data in AEM Forms instead")
	f.StringVar(&c.formsEngine, "forms-engine", "",
		"the server of the Forms database: "+enginePostgres+" or "+engineMySQL+" (default "+enginePostgres+")")
	f.BoolVar(&c.keep, "keep", false, "delete nothing; serve until Enter or Ctrl-C")
	f.StringVar(&c.grpcListen, "grpc-listen", "",
		"the address for gRPC; port 0 picks a free one (default with --keep 127.0.0.1:9090, if it is free)")
	f.StringVar(&c.httpListen, "http-listen", "",
		"the address for REST; port 0 picks a free one (default with --keep 127.0.0.1:8080, if it is free)")
	return cmd
}

func (c config) check() error {
	if c.rows < 0 {
		return flags.Errorf("--rows must not be negative, not %d", c.rows)
	}
	knownEngine := c.formsEngine == enginePostgres || c.formsEngine == engineMySQL
	if c.formsEngine != "" && (!c.forms || !knownEngine) {
		return flags.Errorf("--forms-engine must be %s or %s, and needs --forms", enginePostgres, engineMySQL)
	}
	if c.forms && c.isShop() {
		return flags.Errorf("give either --forms or --profile none")
	}
	return errors.Join(flags.CheckAddress("--grpc-listen", cmp.Or(c.grpcListen, "127.0.0.1:0")),
		flags.CheckAddress("--http-listen", cmp.Or(c.httpListen, "127.0.0.1:0")))
}

func (c config) isShop() bool { return c.profile == runs.ProfileNone }

// serverConfig returns the configuration of the demo's server. With --keep, its addresses are the usual ones if they
// are free.
func (c config) serverConfig(databaseURL string) serve.Config {
	s, usual := serve.ConfigOnFreePorts(databaseURL), serve.DefaultConfig()
	s.GRPCListen = c.address(c.grpcListen, usual.GRPCListen, s.GRPCListen)
	s.HTTPListen = c.address(c.httpListen, usual.HTTPListen, s.HTTPListen)
	return s
}

func (c config) address(given, usual, anyAddress string) string {
	switch {
	case given != "":
		return given
	case c.keep && isFree(usual):
		return usual
	}
	return anyAddress
}

func isFree(address string) bool {
	l, err := net.Listen("tcp", address)
	return err == nil && l.Close() == nil
}

// cancellingWriter cancels the demo when its output is closed.
type cancellingWriter struct {
	io.Writer
	cancel context.CancelFunc
}

func (w *cancellingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		w.cancel()
	}
	return n, err
}
