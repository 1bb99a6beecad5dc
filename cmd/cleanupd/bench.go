package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/bench"
)

func newBench() *cobra.Command {
	var (
		o     bench.Options
		rows  int
		full  bool
		only  []int
		chart string
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare ways to delete old rows, side by side, on a private PostgreSQL",
		Long: "Fill tables, delete their old rows by one unbatched DELETE, by published statements and those that job queues\n" +
			"use, and by this service, each on its own copy and with pgbench running unless --alone, and print a table.\n" +
			"It takes a while, and some gigabytes; compare only figures of one run.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rows < 1_000 {
				return usagef("--rows must be 1000 or more, not %d", rows)
			}
			if o.Repeats < 1 {
				return usagef("--repeats must be 1 or more, not %d", o.Repeats)
			}
			if chart != "" {
				if _, err := os.Stat(filepath.Dir(chart)); err != nil || !slices.Contains([]string{".svg", ".png", ".pdf"}, filepath.Ext(chart)) {
					return usagef("--chart: %q is no .svg, .png or .pdf in a folder that is there", chart)
				}
			}
			o.Cells = bench.DefaultCells(rows)
			if full {
				o.Cells = bench.AllCells(rows)
			}
			if len(only) > 0 {
				var chosen []bench.Cell
				for _, n := range only {
					if n < 1 || n > len(o.Cells) {
						return usagef("--cell must be 1 to %d, not %d", len(o.Cells), n)
					}
					chosen = append(chosen, o.Cells[n-1])
				}
				o.Cells = chosen
			}
			o.Service = startService
			results, idle, err := bench.Run(cmd.Context(), cmd.ErrOrStderr(), o)
			if err != nil {
				return err
			}
			if err := bench.Print(cmd.OutOrStdout(), results, idle); err != nil || chart == "" {
				return err
			}
			return bench.Draw(chart, results)
		},
	}
	f := cmd.Flags()
	f.IntVar(&rows, "rows", 3_000_000, "how many rows a table has, 1000 or more")
	f.IntVar(&o.Repeats, "repeats", 3, "how often each way is measured; results are medians")
	f.DurationVar(&o.Limit, "limit", 20*time.Second, "how long one measurement may take")
	f.BoolVar(&o.Alone, "alone", false, "measure without pgbench, on an otherwise idle server")
	f.StringVar(&o.SharedBuffers, "shared-buffers", "", "shared_buffers of the private server, such as 1GB (default a quarter of the memory)")
	f.BoolVar(&full, "full", false, "measure all 96 kinds of table instead of six")
	f.IntSliceVar(&only, "cell", nil, "measure only these kinds of table, by number; may be repeated (default all)")
	f.StringVar(&chart, "chart", "", "write a chart to this file (.svg, .png or .pdf)")
	return cmd
}

// startService serves a database, and returns functions to run a task and to stop. With tight it gives way to others.
func startService(ctx context.Context, url string, tight bool, tracer pgx.QueryTracer) (run func(context.Context, string) error, stop func() error, err error) {
	c := onFreePorts(url)
	c.tracer = tracer
	if tight {
		c.batches.Target, c.batches.Workers = 5*time.Millisecond, 1
		limits := &c.batches.Limits
		limits.ActiveSessions, limits.WALPerSecond, limits.RowsPerSecond = 1, 32<<20, 200_000
	}
	s, err := newServer(ctx, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	conn, err := (&target{address: s.grpc.Addr().String()}).dial()
	if err != nil {
		s.close()
		return nil, nil, err
	}
	client := cleanupv1.NewCleanupServiceClient(conn)
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.serve(serving) }()
	return func(ctx context.Context, task string) error {
			stream, err := client.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{Tasks: []string{task}})
			for err == nil {
				_, err = stream.Recv()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return plain(err)
		}, func() error {
			_ = conn.Close()
			end()
			return <-ended
		}, nil
}
