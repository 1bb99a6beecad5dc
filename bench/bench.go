package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/localpg"
)

type Options struct {
	Cells   []Cell
	Methods []string      // the names of the methods to compare; empty for all
	Repeats int           // how often each method is measured on each cell; the median counts
	Limit   time.Duration // of one measurement; a method that takes longer is rated by its rows so far
	Alone   bool          // no application runs at the same time
	Holds   int           // 0 to compare all methods; otherwise only the service, without and with so many holds
	// Bursts is how long the application runs, and then rests, in turns; if it is 0, it runs all the time.
	Bursts time.Duration
	// SharedBuffers is the server's shared_buffers; if it is empty, a quarter of the memory, as PostgreSQL's
	// documentation advises.
	SharedBuffers string
}

type Result struct {
	Cell
	Method      string
	RowsPerS    float64
	Finished    bool
	LongestStmt time.Duration // the 99th percentile of the statements' times
	P50, P99    time.Duration // percentiles of the application's transaction times
	WAL         int64         // bytes of WAL written
	// BesideRowsPerS and RestRowsPerS are the speeds while the application runs and rests in turns.
	BesideRowsPerS, RestRowsPerS float64
}

// settings returns the settings of the private server. It is durable and has autovacuum, like a real one.
func (o Options) settings() ([]string, error) {
	buffers := o.SharedBuffers
	if buffers == "" {
		quarter, err := memlimit.ApplyRatio(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem), 0.25)()
		if err != nil {
			return nil, fmt.Errorf("how much memory there is: %w", err)
		}
		buffers = fmt.Sprintf("%dMB", quarter>>20)
	}
	return []string{
		"fsync=on",
		"synchronous_commit=on",
		"full_page_writes=on",
		"autovacuum=on",
		"max_wal_size=4GB",
		"checkpoint_timeout=15min",
		"shared_buffers=" + buffers,
	}, nil
}

func Run(ctx context.Context, w io.Writer, o Options) (results []Result, idle Result, err error) {
	settings, err := o.settings()
	if err != nil {
		return nil, idle, err
	}
	pg, err := localpg.Start(ctx, settings...)
	if err != nil {
		return nil, idle, err
	}
	defer pg.Stop()
	super, err := connect(ctx, pg.URL("postgres", "postgres"))
	if err != nil {
		return nil, idle, err
	}
	defer func() { _ = super.Close(context.WithoutCancel(ctx)) }()
	if _, err := super.Exec(ctx, "CREATE DATABASE "+besideDatabase); err != nil {
		return nil, idle, err
	}
	if err := prepareBeside(ctx, pg); err != nil {
		return nil, idle, fmt.Errorf("pgbench: %w", err)
	}
	if !o.Alone {
		fmt.Fprintln(w, "measuring the application alone …")
		if idle, err = alone(ctx, pg, super); err != nil {
			return nil, idle, err
		}
	}
	for _, cell := range o.Cells {
		fmt.Fprintf(w, "%s: filling …\n", cell)
		if err := cell.fill(ctx, pg, "cell"); err != nil {
			return nil, idle, err
		}
		// as deploy/role.sql does
		if _, err := super.Exec(ctx, "GRANT pg_read_all_stats TO "+campaigndb.Role); err != nil {
			return nil, idle, err
		}
		samples := map[string][]Result{}
		for range o.Repeats {
			for _, m := range o.methods(cell) {
				r, err := measure(ctx, pg, super, cell, m, o)
				if err != nil {
					return nil, idle, fmt.Errorf("%s: %w", m.Name, err)
				}
				fmt.Fprintf(w, "  %-30s %9.0f rows/s\n", m.Name, r.RowsPerS)
				samples[m.Name] = append(samples[m.Name], r)
			}
		}
		for _, m := range o.methods(cell) {
			results = append(results, median(samples[m.Name]))
		}
		if _, err := super.Exec(ctx, "DROP DATABASE cell"); err != nil {
			return nil, idle, err
		}
	}
	return results, idle, nil
}

func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, url+"&application_name=cleanupd")
}

func alone(ctx context.Context, pg *localpg.Server, super *pgx.Conn) (Result, error) {
	b, err := startBeside(ctx, pg, super)
	if err != nil {
		return Result{}, err
	}
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
	}
	took, err := b.end()
	return Result{Method: "nothing", P50: percentile(took, 0.5), P99: percentile(took, 0.99)}, err
}

func measure(
	ctx context.Context, pg *localpg.Server, super *pgx.Conn, cell Cell, m Method, o Options,
) (r Result, err error) {
	const name = "copy"
	for _, sql := range []string{
		"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)",
		"CREATE DATABASE " + name + " TEMPLATE cell OWNER " + campaigndb.Role, "CHECKPOINT",
	} {
		if _, err := super.Exec(ctx, sql); err != nil {
			return r, err
		}
	}
	url := pg.URL(campaigndb.Role, name)
	conn, err := connect(ctx, url)
	if err != nil {
		return r, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	before, _, err := count(ctx, conn, cell.target()) // this also warms the cache
	if err != nil {
		return r, err
	}
	if cell.HeldBack {
		holder, err := connect(ctx, url)
		if err != nil {
			return r, err
		}
		defer func() { _ = holder.Close(context.WithoutCancel(ctx)) }()
		if _, err := holder.Exec(
			ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM NmsDelivery",
		); err != nil {
			return r, err
		}
	}
	var from, to int64
	const position = "SELECT (pg_current_wal_lsn() - '0/0')::bigint"
	if err := super.QueryRow(ctx, position).Scan(&from); err != nil {
		return r, err
	}
	var retained int64 // obsolete rows on hold
	statements := &Statements{}
	clean := func(ctx context.Context) error { return m.run(ctx, url, &statements.took) }
	if m.statement == "" {
		s, err := startService(ctx, url, m, statements)
		if err != nil {
			return r, err
		}
		defer s.close()
		if err := cell.setPolicies(ctx, conn); err != nil {
			return r, err
		}
		if retained, err = s.hold(ctx, conn, m.holds, cell.Rows); err != nil {
			return r, err
		}
		if err := s.run(ctx, cell.target().warmUp); err != nil { // so that the service is warmed up
			return r, err
		}
		clean = func(ctx context.Context) error { return s.run(ctx, cell.target().task) }
	}
	endBeside := func() ([]time.Duration, error) { return nil, nil }
	var b *bursts
	switch {
	case o.Bursts > 0:
		b = startBursts(ctx, pg, super, conn, o.Bursts)
		endBeside = func() ([]time.Duration, error) {
			err := b.end()
			return b.took, err
		}
	case !o.Alone:
		application, err := startBeside(ctx, pg, super)
		if err != nil {
			return r, err
		}
		endBeside = application.end
	}
	limited, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	begun := time.Now()
	err = clean(limited)
	elapsed := time.Since(begun)
	// a server ends a call slightly before its client does
	r = Result{Cell: cell, Method: m.Name, Finished: elapsed < o.Limit-limitSlack}
	beside, besideErr := endBeside()
	if err != nil && r.Finished {
		return r, err
	}
	if besideErr != nil {
		return r, besideErr
	}
	if err := super.QueryRow(ctx, position).Scan(&to); err != nil {
		return r, err
	}
	after, obsolete, err := count(ctx, conn, cell.target())
	if err != nil {
		return r, err
	}
	if r.Finished && obsolete != retained {
		return r, fmt.Errorf("%d obsolete rows are left, of which %d are on hold", obsolete, retained)
	}
	r.RowsPerS, r.WAL, r.LongestStmt = float64(before-after)/elapsed.Seconds(), to-from, percentile(statements.took,
		0.99)
	r.P50, r.P99 = percentile(beside, 0.5), percentile(beside, 0.99)
	if b != nil {
		r.BesideRowsPerS = float64(b.among) / b.busy.Seconds()
		r.RestRowsPerS = float64(b.rows) / b.idle.Seconds()
	}
	return r, nil
}

// limitSlack is how long before the limit a method that the limit stopped may have ended.
const limitSlack = 200 * time.Millisecond

func count(ctx context.Context, conn *pgx.Conn, t target) (all, obsolete int64, err error) {
	const counts = "SELECT (SELECT count(*) FROM %[1]s), (SELECT count(*) FROM %[1]s WHERE %[2]s)"
	err = conn.QueryRow(ctx, fmt.Sprintf(counts, t.table, t.obsolete)).Scan(&all, &obsolete)
	return all, obsolete, err
}

func median(samples []Result) Result {
	out := samples[0]
	out.RowsPerS = middle(samples, func(r Result) float64 { return r.RowsPerS })
	out.LongestStmt = middle(samples, func(r Result) time.Duration { return r.LongestStmt })
	out.P50 = middle(samples, func(r Result) time.Duration { return r.P50 })
	out.P99 = middle(samples, func(r Result) time.Duration { return r.P99 })
	out.BesideRowsPerS = middle(samples, func(r Result) float64 { return r.BesideRowsPerS })
	out.RestRowsPerS = middle(samples, func(r Result) float64 { return r.RestRowsPerS })
	out.WAL = middle(samples, func(r Result) int64 { return r.WAL })
	for _, r := range samples {
		out.Finished = out.Finished && r.Finished
	}
	return out
}

func middle[T interface {
	~int64 | ~float64
}](samples []Result, of func(Result) T) T {
	var values []T
	for _, r := range samples {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// Statements records how long each statement that deletes took.
type Statements struct {
	mu   sync.Mutex
	took []time.Duration
}

type begunKey struct{}

func (s *Statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (s *Statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart looks for a statement that deletes, which is sent with the BEGIN of its batch.
func (s *Statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	if !slices.ContainsFunc(b.Batch.QueuedQueries, deletes) {
		return ctx
	}
	return context.WithValue(ctx, begunKey{}, time.Now())
}

func deletes(q *pgx.QueuedQuery) bool {
	return strings.HasPrefix(q.SQL, "DELETE FROM ONLY") || strings.HasPrefix(q.SQL, "WITH pick") ||
		strings.HasPrefix(q.SQL, "WITH gone")
}

func (s *Statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s *Statements) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if begun, ok := ctx.Value(begunKey{}).(time.Time); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.took = append(s.took, time.Since(begun))
	}
}
