package demo

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/localmysql"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/tempdir"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// demoConfig configures the demo.
type config struct {
	rows                   int
	keep, forms            bool
	formsEngine            string // empty: no matter
	grpcListen, httpListen string // empty: a free port
}

func NewCommand() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it all: a private PostgreSQL, a Campaign database, a run, a summary",
		Long: "Start a private PostgreSQL, fill a Campaign database with rows on both sides of every rule, serve it, " +
			"run the\n" +
			"cleanup, and print what was deleted and what stayed. With --keep serve it as it is, and say what to try.\n" +
			"With --forms use an AEM Forms database and its document storage instead, and find and erase one " +
			"person's data;\nwith --forms-engine mysql on a private MariaDB, which must be installed.\n" +
			"It leaves nothing behind. Where there is no PostgreSQL it is downloaded, into the user's cache.",
		Example: "  cleanupd demo\n  cleanupd demo --rows 1000000\n  cleanupd demo --keep\n  cleanupd demo --forms " +
			"--keep\n  cleanupd demo --forms --forms-engine mysql",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.rows < 0 {
				return flags.Errorf("--rows must not be negative, not %d", c.rows)
			}
			if engine := c.formsEngine; engine != "" && (!c.forms || (engine != enginePostgres && engine != engineMySQL)) {
				return flags.Errorf("--forms-engine is %s or %s, beside --forms", enginePostgres, engineMySQL)
			}
			// a write that nobody reads fails, and the demo cleans up
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			ctx, leave := context.WithCancel(cmd.Context())
			defer leave()
			out := terminal.ScreenOf(cmd.OutOrStdout())
			out.Writer = &watchedWriter{out.Writer, leave}
			return run(ctx, out, cmd.InOrStdin(), c)
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.rows, "rows", 200_000, "roughly how many rows to make")
	f.BoolVar(&c.forms, "forms", false, "find and erase user data in AEM Forms instead")
	f.StringVar(
		&c.formsEngine,
		"forms-engine",
		"",
		"what the Forms database is in: "+enginePostgres+" or "+engineMySQL+" (default "+enginePostgres+")",
	)
	f.BoolVar(&c.keep, "keep", false, "delete nothing; serve until Enter or Ctrl-C")
	f.StringVar(
		&c.grpcListen,
		"grpc-listen",
		"",
		"the address for gRPC; port 0 picks a free one (default with --keep 127.0.0.1:9090, if it is free)",
	)
	f.StringVar(
		&c.httpListen,
		"http-listen",
		"",
		"the address for REST; port 0 picks a free one (default with --keep 127.0.0.1:8080, if it is free)",
	)
	return cmd
}

// serving is the configuration of the demo's server.
func (c config) serverConfig(databaseURL string) serve.Config {
	s := serve.ConfigOnFreePorts(databaseURL)
	for _, address := range []struct {
		given, usual string
		of           *string
	}{{c.grpcListen, serve.DefaultConfig().GRPCListen, &s.GRPCListen}, {c.httpListen, serve.DefaultConfig().HTTPListen, &s.HTTPListen}} {
		switch {
		case address.given != "":
			*address.of = address.given
		case c.keep && isFree(address.usual):
			*address.of = address.usual
		}
	}
	return s
}

// isFree reports whether an address can be listened on.
func isFree(address string) bool {
	l, err := net.Listen("tcp", address)
	return err == nil && l.Close() == nil
}

// audience is what reads the demo's output. When it no longer does, it leaves.
type watchedWriter struct {
	io.Writer
	cancel context.CancelFunc
}

func (a *watchedWriter) Write(p []byte) (int, error) {
	n, err := a.Writer.Write(p)
	if err != nil {
		a.cancel()
	}
	return n, err
}

func run(ctx context.Context, w io.Writer, in io.Reader, c config) error {
	mistakes := errors.Join(
		flags.CheckAddress("--grpc-listen", cmp.Or(c.grpcListen, "127.0.0.1:0")),
		flags.CheckAddress("--http-listen", cmp.Or(c.httpListen, "127.0.0.1:0")),
	)
	if mistakes != nil {
		return mistakes
	}
	fmt.Fprintln(w, "Starting a private PostgreSQL …")
	pg, err := localpg.Start(ctx)
	if err != nil {
		return err
	}
	defer pg.Stop()
	if c.forms {
		c.rows = 0
	} else {
		fmt.Fprintf(w, "Making a Campaign database of about %s rows …\n", humanize.Comma(int64(c.rows)))
	}
	if err := createCampaign(ctx, pg, c.rows); err != nil {
		return err
	}
	url := pg.URL(campaigndb.Role, campaignDatabase)
	config := c.serverConfig(url)
	if c.forms {
		folder, remove, err := tempdir.New(os.TempDir(), "cleanupd-gds-")
		if err != nil {
			return err
		}
		defer remove()
		fill := createFormsInPostgres
		if c.formsEngine == engineMySQL {
			server, err := localmysql.Start(ctx)
			if err != nil {
				return err
			}
			defer server.Stop()
			fill = func(ctx context.Context, _ *localpg.Server, folder string) (serve.FormsConfig, error) {
				return createFormsInMySQL(ctx, server, folder)
			}
		}
		fmt.Fprintf(
			w,
			"Making an AEM Forms database of %d process instances, and its document storage …\n",
			formsInstances,
		)
		if config.Forms, err = fill(ctx, pg, folder); err != nil {
			return err
		}
	}
	s, err := serve.New(ctx, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Serve(serving)
		stop()
	}()
	switch {
	case c.keep:
		printSuggestions(w, s, url, c.forms)
		waitForEnter(serving, in)
	case c.forms:
		err = eraseUser(ctx, w, s)
	default:
		err = runCleanup(ctx, w, s, url)
	}
	stop()
	if serveErr := <-ended; err == nil {
		err = serveErr
	}
	return err
}

// tellToTry prints commands for the demo's server, to be pasted.
func printSuggestions(w io.Writer, s *serve.Server, url string, forms bool) {
	program, server := programName(), s.GRPC.Addr().String()
	grpc := "grpcurl -plaintext " + server
	rest := "http://" + s.HTTP.Addr().String()
	try := []string{
		"psql '" + url + "'",
		program + " run --dry-run --server " + server,
		program + " run --server " + server,
		program + " runs --server " + server,
		grpc + " cleanup.v1.CleanupService/RunCleanup",
		"curl -N -X POST " + rest + "/v1/runs -H 'content-type: application/json' -d '{}'",
		"curl " + rest + "/v1/options",
	}
	if forms {
		try = []string{
			program + " userdata find " + formsUser + formsVariables + " --server " + server,
			program + " userdata erase " + formsUser + formsVariables + " --server " + server,
			"curl -X POST " + rest + "/v1/userdata:find -H 'content-type: application/json' -d '{\"userId\": \"" + formsUser + "\"}'",
		}
	}
	fmt.Fprintf(
		w,
		"\nServing gRPC on %s and REST on %s. Nothing is deleted until you say so. Open the console in a browser:\n\n  "+
			"%s/\n\nOr try, in another terminal:\n\n  %s\n\nEnter or Ctrl-C ends the demo.\n",
		server,
		rest,
		rest,
		strings.Join(try, "\n  "),
	)
}

// programName is what this program was called as, for commands to be pasted.
func programName() string {
	self, err := os.Executable()
	if err != nil || strings.Contains(self, "go-build") {
		return "go run ./cmd/cleanupd"
	}
	if found, err := exec.LookPath("cleanupd"); err == nil && found == self {
		return "cleanupd"
	}
	return self
}

// enter returns when a line was read, or the context has ended.
func waitForEnter(ctx context.Context, in io.Reader) {
	line := make(chan struct{})
	go func() {
		if _, err := bufio.NewReader(in).ReadString('\n'); err == nil { // the end of the input is no line
			close(line)
		}
	}()
	select {
	case <-line:
	case <-ctx.Done():
	}
}
