package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/localpg"
)

// settling is how long a gentle run has to notice that the application began or ended.
const settling = time.Second

// bursts is an application that runs and rests in turns.
type bursts struct {
	stop context.CancelFunc
	done sync.WaitGroup

	err         error
	idle, busy  time.Duration // how long the application rested and ran, without settling
	rows, among int64         // rows deleted while the application rested, and while it ran
	took        []time.Duration
}

const deletedSQL = "SELECT COALESCE(sum(rows_deleted), 0)::bigint FROM cleanupd.task"

// startBursts starts the application. conn is a connection to the database from which rows are deleted.
func startBursts(ctx context.Context, pg *localpg.Server, super, conn *pgx.Conn, length time.Duration) *bursts {
	b := &bursts{}
	ctx, b.stop = context.WithCancel(ctx)
	b.done.Go(func() {
		for ctx.Err() == nil && b.err == nil {
			b.err = b.turn(ctx, pg, super, conn, length)
		}
	})
	return b
}

func (b *bursts) turn(ctx context.Context, pg *localpg.Server, super, conn *pgx.Conn, length time.Duration) error {
	application, err := startBeside(ctx, pg, super)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	application.since = application.since.Add(settling)
	rows, busy, err := deletedFor(ctx, conn, length)
	took, ended := application.end()
	b.took, b.busy, b.among = append(b.took, took...), b.busy+busy, b.among+rows
	if err != nil || ended != nil || ctx.Err() != nil {
		return ignoreEnd(ctx, errors.Join(err, ended))
	}
	rows, idle, err := deletedFor(ctx, conn, length)
	b.rows, b.idle = b.rows+rows, b.idle+idle
	return ignoreEnd(ctx, err)
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func deletedFor(ctx context.Context, conn *pgx.Conn, length time.Duration) (rows int64, took time.Duration, err error) {
	if err := wait(ctx, settling); err != nil {
		return 0, 0, err
	}
	var before, after int64
	if err := conn.QueryRow(ctx, deletedSQL).Scan(&before); err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	ended := wait(ctx, length-settling)
	if err := conn.QueryRow(context.WithoutCancel(ctx), deletedSQL).Scan(&after); err != nil {
		return 0, 0, err
	}
	return after - before, time.Since(begun), ended
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *bursts) end() error {
	b.stop()
	b.done.Wait()
	return b.err
}

func PrintBursts(w io.Writer, results []Result, idle Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "METHOD\tROWS/S BESIDE THE APPLICATION\tROWS/S WHILE IT RESTS\tAPPLICATION P50\tP99\t")
	fmt.Fprintf(table, "(nothing)\t\t\t%s\t%s\t\n", short(idle.P50), short(idle.P99))
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%s\t%s\t\n", r.Method, r.BesideRowsPerS, r.RestRowsPerS, short(r.P50),
			short(r.P99))
	}
	return table.Flush()
}
