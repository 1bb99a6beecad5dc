package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// demoDatabase is the demo's database.
const campaignDatabase = "campaign"

func createCampaign(ctx context.Context, pg *localpg.Server, rows int) error {
	conn, err := campaigndb.Create(ctx, pg.URL, campaignDatabase, campaigndb.Schema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return campaigndb.Fill(ctx, conn, rows, 1, time.Now())
}

// runDemo runs the cleanup, and prints what was deleted.
func runCleanup(ctx context.Context, w io.Writer, s *serve.Server, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	before, err := campaigndb.CountAll(ctx, conn)
	if err != nil {
		return err
	}
	server, err := (&rpc.Server{Address: s.GRPC.Addr().String()}).Dial()
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	client := cleanupv1.NewCleanupServiceClient(server)
	stream, err := client.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{})
	if err != nil {
		return rpc.PlainError(err)
	}
	if err := watch.New(ctx, nil, client, stream).Print(watch.NewView(terminal.ScreenOf(w))); err != nil {
		return rpc.PlainError(err)
	}
	after, err := campaigndb.CountAll(ctx, conn)
	if err != nil {
		return err
	}
	return printCounts(terminal.ScreenOf(w), before, after)
}

// printCounts prints what was deleted and what stayed, a line per table that had rows.
func printCounts(s *terminal.Screen, before, after []campaigndb.Count) error {
	left := map[string]int64{}
	for _, c := range after {
		left[c.Table] = c.Rows
	}
	table := []terminal.Row{{"TABLE", "WENT", "STAYED"}}
	var went, stayed int64
	for _, c := range before {
		if c.Rows == 0 {
			continue
		}
		rows, there := left[c.Table]
		stays := humanize.Comma(rows)
		if !there {
			stays = "dropped"
		}
		table = append(table, terminal.Row{c.Table, humanize.Comma(c.Rows - rows), stays})
		went += c.Rows - rows
		stayed += rows
	}
	fmt.Fprintln(s)
	return s.PrintTable(append(table, terminal.Row{"total", humanize.Comma(went), humanize.Comma(stayed)}))
}
