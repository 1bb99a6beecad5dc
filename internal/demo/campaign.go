package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/cli/contexts"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

const campaignDatabase = "campaign"

func createCampaign(ctx context.Context, pg *localpg.Server, rows int) error {
	conn, err := campaigndb.Create(ctx, pg.URL, campaignDatabase, campaigndb.Schema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return campaigndb.Fill(ctx, conn, rows, 1, time.Now())
}

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
	server, err := (&rpc.Server{Context: contexts.Context{Address: s.GRPC.Addr().String()}}).Dial()
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	client := cleanupd.NewClient(server)
	run, err := watch.Start(ctx, nil, client, &cleanupv1.RunCleanupRequest{})
	if err != nil {
		return rpc.PlainError(err)
	}
	if err := run.Print(watch.NewView(out, nil, false)); err != nil {
		return rpc.PlainError(err)
	}
	stored, err := client.GetRun(ctx, &cleanupv1.GetRunRequest{RunId: run.ID()})
	if err != nil {
		return rpc.PlainError(err)
	}
	after, err := campaigndb.CountAll(ctx, conn)
	if err != nil {
		return err
	}
	return printCounts(out, before, after, stored.GetRun())
}

// printCounts prints for each table that has or had rows: how many rows there were, how many the run reports as
// deleted, how many were in dropped tables, how many the run added (options, and sums that replace statistics), and
// how many remain.
func printCounts(s *terminal.Screen, before, after []campaigndb.Count, run *cleanupv1.Run) error {
	remaining, deleted := map[string]int64{}, map[string]int64{}
	for _, c := range after {
		remaining[c.Table] = c.Rows
	}
	for _, result := range run.GetResults() {
		if result.GetRowsDeleted() == 0 { // the task statistics lists the tables of all tasks again
			continue
		}
		for _, table := range result.GetSpace() {
			deleted[table.GetTable()] += table.GetRowsDeleted()
		}
	}
	table := []terminal.Row{{"TABLE", "BEFORE", "DELETED", "DROPPED", "ADDED", "AFTER"}}
	add := func(name string, figures [5]int64) {
		row := terminal.Row{name}
		for _, figure := range figures {
			row = append(row, humanize.Comma(figure))
		}
		table = append(table, row)
	}
	var total [5]int64
	for _, c := range before {
		rows, exists := remaining[c.Table]
		gone, dropped := deleted[pgx.Identifier{"public", c.Table}.Sanitize()], int64(0)
		if !exists {
			dropped = c.Rows
		}
		figures := [5]int64{c.Rows, gone, dropped, rows - c.Rows + gone + dropped, rows}
		if figures == ([5]int64{}) {
			continue
		}
		add(c.Table, figures)
		for i, figure := range figures {
			total[i] += figure
		}
	}
	add("total", total)
	fmt.Fprintln(s)
	return s.PrintTable(table)
}
