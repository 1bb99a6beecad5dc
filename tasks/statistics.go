package tasks

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

var statistics = Task{
	Name:        "statistics",
	Title:       "Statistics and storage",
	Description: "Deletes nothing: vacuums and analyzes the tables after the cleanup, as option XtkCleanup_NoStats says.",
	Options:     []campaign.Option{campaign.NoStats},
	Do:          optimizeStorage,
}

// tablesByOwner are the tables in the application's schema and in the service's own, those that the role may vacuum
// ($2), or the others.
const tablesByOwner = `
SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ($1, 'cleanupd') AND c.relkind = 'r' AND c.relpersistence <> 't' AND pg_has_role(c.relowner, 'USAGE') = $2
ORDER BY n.nspname, c.relname`

// optimizeStorage goes table by table, so that there is progress to show, beginning with those that the run deleted most from,
// and with SKIP_LOCKED, so that nothing waits.
func optimizeStorage(ctx context.Context, e *Env) (bool, error) {
	mode, err := e.Options.Statistics()
	if err != nil {
		e.log(ctx, Warning, err.Error())
	}
	if mode == campaign.NoStatistics {
		e.log(ctx, Info, "Option 'XtkCleanup_NoStats' is set to '1'")
		return true, nil
	}
	command := "VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED)"
	if mode == campaign.AnalyzeOnly {
		command = "ANALYZE (VERBOSE, SKIP_LOCKED)"
	}
	tables, err := e.tablesByOwner(ctx, true)
	if err != nil {
		return false, err
	}
	others, err := e.tablesByOwner(ctx, false)
	if err != nil {
		return false, err
	}
	if len(others) > 0 {
		e.log(ctx, Info, fmt.Sprintf("%d tables of %s belong to another role, which alone may vacuum them: left to autovacuum", len(others), e.Catalog.Schema))
	}
	if e.DryRun {
		e.log(ctx, Info, fmt.Sprintf("would run %s on %d tables", command, len(tables)))
		return true, nil
	}
	conn, said, err := verboseConn(ctx, e)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	emptied, err := e.journal.Emptied(ctx)
	if err != nil {
		return false, fmt.Errorf("list the tables: %w", err)
	}
	slices.SortStableFunc(tables, func(a, b campaign.Leaf) int { return cmp.Compare(rank(emptied, a), rank(emptied, b)) })
	done := slices.IndexFunc(tables, func(t campaign.Leaf) bool { return t.Quoted() == e.Cursor.Unit })
	for _, t := range tables[done+1:] { // all of them, or those that a previous worker has left
		name := t.Quoted()
		e.journal.At(t.Schema+"."+t.Name, -1)
		err := e.vacuumed(ctx, name, purge.Space{Relation: name})
		if err == nil {
			_, err = conn.Exec(ctx, command+" "+name)
		}
		if lines := said(); len(lines) > 0 {
			e.log(ctx, Info, lines...)
		}
		switch {
		case endsRun(err):
			return false, err
		case sqlstate.Is(err, pgerrcode.LockNotAvailable): // or an index of it
			e.log(ctx, Warning, name+" is locked by someone: passed over")
		case err != nil && !vanished(err):
			return false, fmt.Errorf("%s %s: %w", command, name, err)
		}
		e.Cursor.Unit = name
	}
	return true, e.vacuumed(ctx, "the last table")
}

func (e *Env) tablesByOwner(ctx context.Context, ours bool) ([]campaign.Leaf, error) {
	rows, err := e.Pool.Query(ctx, tablesByOwner, e.Catalog.Schema, ours)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[campaign.Leaf])
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return tables, nil
}

// vacuumed records which table was done last, and the size of the next one, for whose lock it waits only briefly.
func (e *Env) vacuumed(ctx context.Context, what string, next ...purge.Space) error {
	return e.inBatch(ctx, what, func(tx Tx) (purge.Delta, error) {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100")
		return purge.Delta{Space: next, Cursor: e.Cursor}, err
	})
}

// rank is the position of a table among those that the run deleted from; the others come after these.
func rank(emptied []string, t campaign.Leaf) int {
	if i := slices.Index(emptied, t.Quoted()); i >= 0 {
		return i
	}
	return len(emptied)
}

// verboseConn opens a connection that collects PostgreSQL's notices. It is not from the pool, since the handler of notices is
// set when connecting.
func verboseConn(ctx context.Context, e *Env) (conn *pgx.Conn, said func() []string, err error) {
	var lines []string
	config := e.Pool.Config().ConnConfig
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		lines = append(lines, n.Severity+":  "+n.Message)
	}
	// A large table may take hours, but waiting for a lock must not.
	config.RuntimeParams["statement_timeout"], config.RuntimeParams["lock_timeout"] = "24h", "2s"
	conn, err = pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, nil, fmt.Errorf("connect for VACUUM: %w", err)
	}
	return conn, func() []string {
		out := lines
		lines = nil
		return out
	}, nil
}
