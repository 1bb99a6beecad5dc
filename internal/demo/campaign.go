package demo

import (
	"context"
	"fmt"
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

// campaignDatabase is the name of the Campaign database.
const campaignDatabase = "campaign"

// createCampaign creates a Campaign database of about so many rows.
func createCampaign(ctx context.Context, pg *localpg.Server, rows int) error {
	conn, err := campaigndb.Create(ctx, pg.URL, campaignDatabase, campaigndb.Schema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return campaigndb.Fill(ctx, conn, rows, 1, time.Now())
}

// runCleanup runs the cleanup, and prints how many rows were deleted.
func runCleanup(ctx context.Context, out *terminal.Screen, s *serve.Server, url string) error {
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
	run, err := watch.Start(ctx, nil, client, &cleanupv1.RunCleanupRequest{})
	if err != nil {
		return rpc.PlainError(err)
	}
	if err := run.Print(watch.NewView(out)); err != nil {
		return rpc.PlainError(err)
	}
	after, err := campaigndb.CountAll(ctx, conn)
	if err != nil {
		return err
	}
	return printCounts(out, before, after)
}

// printCounts prints how many rows of each table were deleted. Tables that had no rows are left out.
func printCounts(s *terminal.Screen, before, after []campaigndb.Count) error {
	remaining := map[string]int64{}
	for _, c := range after {
		remaining[c.Table] = c.Rows
	}
	table := []terminal.Row{{"TABLE", "DELETED", "REMAINING"}}
	var totalDeleted, totalRemaining int64
	for _, c := range before {
		if c.Rows == 0 {
			continue
		}
		rows, exists := remaining[c.Table]
		text := humanize.Comma(rows)
		if !exists {
			text = "dropped"
		}
		table = append(table, terminal.Row{c.Table, humanize.Comma(c.Rows - rows), text})
		totalDeleted += c.Rows - rows
		totalRemaining += rows
	}
	fmt.Fprintln(s)
	return s.PrintTable(append(table, terminal.Row{
		"total",
		humanize.Comma(totalDeleted),
		humanize.Comma(totalRemaining),
	}))
}
