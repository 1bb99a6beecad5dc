package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/cli/contexts"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// run runs the demo, or serves until the user ends it.
func run(ctx context.Context, out *terminal.Screen, in io.Reader, c config) error {
	fmt.Fprintln(out, "Starting a private PostgreSQL …")
	pg, err := localpg.Start(ctx)
	if err != nil {
		return err
	}
	defer pg.Stop()
	url, err := createDatabase(ctx, out, pg, c)
	if err != nil {
		return err
	}
	config := c.serverConfig(url)
	if c.forms {
		fmt.Fprintf(out, "Making an AEM Forms database of %d process instances, and its document storage …\n",
			formsInstances)
		forms, remove, err := createForms(ctx, pg, c.formsEngine)
		if err != nil {
			return err
		}
		defer remove()
		config.Forms = forms
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
	if c.isShop() {
		err = applyPolicies(ctx, out, s)
	}
	switch {
	case err != nil:
	case c.keep:
		if err = printSuggestions(out, s, url, c); err == nil {
			waitForEnter(serving, in)
		}
	case c.isShop():
		err = cleanShop(ctx, out, s, url)
	case c.forms:
		err = eraseUser(ctx, out, s)
	default:
		err = runCleanup(ctx, out, s, url)
	}
	stop()
	if serveErr := <-ended; err == nil {
		err = serveErr
	}
	return err
}

func createDatabase(ctx context.Context, out io.Writer, pg *localpg.Server, c config) (url string, err error) {
	switch {
	case c.isShop():
		fmt.Fprintln(out, "Making the database of a shop …")
		return pg.URL(campaigndb.Role, shopDatabase), createShop(ctx, pg)
	case c.forms:
		c.rows = 0
	default:
		fmt.Fprintf(out, "Making a Campaign database of about %s rows …\n", humanize.Comma(int64(c.rows)))
	}
	return pg.URL(campaigndb.Role, campaignDatabase), createCampaign(ctx, pg, c.rows)
}

func execute(ctx context.Context, out io.Writer, cmd *cobra.Command, args string) error {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(strings.Fields(args))
	cmd.SetOut(out)
	cmd.SetErr(out)
	return cmd.ExecuteContext(ctx)
}

// printSuggestions prints commands to try, with the addresses of the demo's server.
func printSuggestions(w io.Writer, s *serve.Server, url string, c config) error {
	database, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	psql := fmt.Sprintf("psql -h %s -p %d -U %s %s", database.Host, database.Port, database.User, database.Database)
	usual, program, server := serve.DefaultConfig(), programName(), s.GRPC.Addr().String()
	to := " --server " + server
	known, err := contexts.Load()
	elsewhere := known.Current + os.Getenv("CLEANUPD_SERVER") + os.Getenv("CLEANUPD_CONTEXT")
	if err == nil && elsewhere == "" && server == usual.GRPCListen {
		to = ""
	}
	rest := "http://" + s.HTTP.Addr().String()
	const inJSON = " -H 'content-type: application/json' -d "
	commands := []string{
		program + " run --preview" + to,
		program + " run" + to,
		program + " run --dry-run --task sessions --task audit-trail" + to,
		"grpcurl -plaintext -d '{\"tasks\": [\"sessions\"]}' " + server + " cleanup.v1.CleanupService/RunCleanup",
		"curl -N -X POST " + rest + "/v1/runs" + inJSON + "'{\"tasks\": [\"sessions\"]}'",
		program + " options set broadLogPurgeDelayDays=120" + to,
		program + " schedule set --cron '30 3 * * 1-6' --time-zone Europe/Berlin" + to,
		program + " runs" + to,
		psql,
	}
	if c.isShop() {
		commands = []string{
			program + " policies" + to,
			program + " run --preview" + to,
			program + " policies export old-events" + to,
			program + " run" + to,
			"curl " + rest + "/v1/policies",
			psql,
		}
	}
	if c.forms {
		commands = []string{
			program + " userdata find " + formsUser + formsVariables + to,
			program + " userdata erase " + formsUser + formsVariables + to,
			"curl -X POST " + rest + "/v1/userdata:find" + inJSON + "'{\"userId\": \"" + formsUser + "\"}'",
		}
	}
	fmt.Fprintf(
		w,
		"\nServing gRPC on %s and REST on %s. Nothing is deleted until you start it. Open the console in a browser:"+
			"\n\n  %s/\n\nOr try, in another terminal:\n\n  %s\n",
		server, rest, rest, strings.Join(commands, "\n  "),
	)
	if server != usual.GRPCListen && c.grpcListen == "" {
		fmt.Fprintf(
			w, "\nAnother program has %s, where commands without --server go. To make them go to the demo:\n\n"+
				"  export CLEANUPD_SERVER=%s\n", usual.GRPCListen, server,
		)
	}
	if rest != "http://"+usual.HTTPListen && c.httpListen == "" {
		fmt.Fprintf(w, "\nAnother program has %s: http://%[1]s/ is not the demo.\n", usual.HTTPListen)
	}
	_, err = fmt.Fprint(w, "\nEnter or Ctrl-C ends the demo.\n")
	return err
}

// programName returns how to call this program in commands that users copy.
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

// waitForEnter waits for Enter or the end of the context. The end of the input does not count as Enter.
func waitForEnter(ctx context.Context, in io.Reader) {
	line := make(chan struct{})
	go func() {
		if _, err := bufio.NewReader(in).ReadString('\n'); err == nil {
			close(line)
		}
	}()
	select {
	case <-line:
	case <-ctx.Done():
	}
}
