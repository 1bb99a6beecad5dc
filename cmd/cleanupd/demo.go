package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/localpg"
)

// demoDatabase is the demo's database.
const demoDatabase = "campaign"

func newDemo() *cobra.Command {
	var (
		rows        int
		keep, forms bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it all: a private PostgreSQL, a Campaign database, a run, a summary",
		Long: "Start a private PostgreSQL, fill a Campaign database with rows on both sides of every rule, serve it on\n" +
			"free ports, run the cleanup, and print what was deleted and what stayed. It leaves nothing behind.\n" +
			"With --forms, find and erase one person's data in an AEM Forms database and its document storage instead.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rows < 0 {
				return usagef("--rows must not be negative, not %d", rows)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGPIPE) // clean up even if the output is no longer read
			defer stop()
			return demo(ctx, cmd.OutOrStdout(), rows, keep, forms)
		},
	}
	cmd.Flags().IntVar(&rows, "rows", 200_000, "roughly how many rows to make")
	cmd.Flags().BoolVar(&forms, "forms", false, "find and erase user data in AEM Forms instead")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep serving until interrupted")
	return cmd
}

func demo(ctx context.Context, w io.Writer, rows int, keep, forms bool) error {
	fmt.Fprintln(w, "Starting a private PostgreSQL …")
	pg, err := localpg.Start(ctx)
	if err != nil {
		return err
	}
	defer pg.Stop()
	if forms {
		rows = 0
	} else {
		fmt.Fprintf(w, "Making a Campaign database of about %d rows …\n", rows)
	}
	if err := fillDemo(ctx, pg, rows); err != nil {
		return err
	}
	url := pg.URL(campaigndb.Role, demoDatabase)
	var ofForms formsConfig
	if forms {
		folder, err := os.MkdirTemp("", "cleanupd-gds-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		if ofForms, err = fillForms(ctx, w, pg, folder); err != nil {
			return err
		}
	}
	config := onFreePorts(url)
	config.forms = ofForms
	s, err := newServer(ctx, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.serve(serving) }()
	if forms {
		err = runFormsDemo(ctx, w, s)
	} else {
		err = runDemo(ctx, w, s, url)
	}
	if keep && err == nil {
		fmt.Fprintln(w, "\nServing until interrupted (Ctrl-C).")
		<-ctx.Done()
	}
	stop()
	if serveErr := <-ended; err == nil {
		err = serveErr
	}
	return err
}

func fillDemo(ctx context.Context, pg *localpg.Server, rows int) error {
	conn, err := campaigndb.Create(ctx, pg.URL, demoDatabase, campaigndb.Schema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return campaigndb.Fill(ctx, conn, rows, 1, time.Now())
}

// runDemo prints how to call the server, runs the cleanup, and prints what was deleted.
func runDemo(ctx context.Context, w io.Writer, s *server, url string) error {
	fmt.Fprintf(w, `
The database:  psql '%[1]s'
Over gRPC:     grpcurl -plaintext -d '{}' %[2]s cleanup.v1.CleanupService/RunCleanup
Over REST:     curl -N -X POST http://%[3]s/v1/runs -H 'content-type: application/json' -d '{}'
               curl http://%[3]s/v1/tasks
               curl http://%[3]s/v1/options

`, url, s.grpc.Addr(), s.http.Addr())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	before, err := campaigndb.CountAll(ctx, conn)
	if err != nil {
		return err
	}
	server, err := (&target{address: s.grpc.Addr().String()}).dial()
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	client := cleanupv1.NewCleanupServiceClient(server)
	stream, err := client.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{})
	if err != nil {
		return plain(err)
	}
	if err := show(w, &following{ctx: ctx, client: client, receive: received(stream)}); err != nil {
		return err
	}
	after, err := campaigndb.CountAll(ctx, conn)
	if err != nil {
		return err
	}
	return printCounts(w, before, after)
}

// printCounts prints what was deleted and what stayed, a line per table that had rows.
func printCounts(w io.Writer, before, after []campaigndb.Count) error {
	left := map[string]int64{}
	for _, c := range after {
		left[c.Table] = c.Rows
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\nTABLE\tWENT\tSTAYED\t")
	var went, stayed int64
	for _, c := range before {
		if c.Rows == 0 {
			continue
		}
		rows, there := left[c.Table]
		stays := fmt.Sprint(rows)
		if !there {
			stays = "dropped"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t\n", c.Table, c.Rows-rows, stays)
		went += c.Rows - rows
		stayed += rows
	}
	fmt.Fprintf(table, "total\t%d\t%d\t\n", went, stayed)
	return table.Flush()
}
