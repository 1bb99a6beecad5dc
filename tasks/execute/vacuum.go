package execute

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// storage is a table or a materialized view.
type storage struct {
	OID          uint32
	Schema, Name string
	Parent       bool // partitioned: its rows are its partitions'
}

// Quoted is its name for an SQL statement, with its schema.
func (s storage) Quoted() string { return pgx.Identifier{s.Schema, s.Name}.Sanitize() }

// command is what a mode of the task statistics means for it, without its name. VACUUM of a parent would do its
// partitions again. So does ANALYZE, which it needs since autovacuum never does parents, before version 18. Citus
// passes on no ANALYZE with SKIP_LOCKED.
func (t *task) command(s storage, mode int) string {
	analyzed := s.Parent || mode == campaign.AnalyzeOnly
	switch {
	case analyzed && t.given.Catalog.Elsewhere[s.OID] == campaign.Distributed:
		return "ANALYZE (VERBOSE)"
	case s.Parent && t.given.Catalog.Version >= 180_000:
		return "ANALYZE (VERBOSE, SKIP_LOCKED) ONLY"
	case analyzed:
		return "ANALYZE (VERBOSE, SKIP_LOCKED)"
	}
	if t.VacuumTruncate {
		return "VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED)"
	}
	return "VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED, TRUNCATE false)"
}

// storagesByOwner are those in the application's schema and in the service's own, those that the role may vacuum ($2),
// or the others: first those that were emptied ($3), in their order, and parents after their partitions; all of them
// ($4), or only those that were emptied, with their parents. A parent of foreign tables is left out, since ANALYZE
// would read these from their server. None of this waits for a lock, as pg_partition_tree would.
const storagesByOwner = `
WITH emptied AS (SELECT to_regclass(name)::oid AS oid, place
  FROM unnest($3::text[]) WITH ORDINALITY AS given (name, place))
SELECT c.oid, n.nspname, c.relname, c.relkind = 'p' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT
  JOIN emptied ON emptied.oid = c.oid
WHERE n.nspname IN ($1, 'cleanupd') AND c.relkind IN ('r', 'm', 'p') AND c.relpersistence <> 't'
  AND pg_has_role(c.relowner, 'USAGE') = $2
  AND NOT EXISTS (SELECT FROM pg_class f, pg_partition_ancestors(f.oid) a WHERE f.relkind = 'f' AND a.relid = c.oid)
  AND ($4 OR c.oid IN (SELECT oid FROM emptied UNION SELECT a.relid
    FROM emptied, pg_partition_ancestors(emptied.oid) a))
ORDER BY CASE c.relkind WHEN 'p' THEN (SELECT count(*)
  FROM pg_partition_ancestors(c.oid)) END DESC NULLS FIRST, emptied.place, n.nspname, c.relname`

func (t *task) storages(ctx context.Context, ours bool, emptied []string, all bool) ([]storage, error) {
	rows, err := t.Pool.Query(ctx, storagesByOwner, t.given.Catalog.Schema, ours, emptied, all)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[storage])
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return tables, nil
}

// byCommand are tables by what a mode of the task statistics means for them.
func (t *task) byCommand(tables []storage, mode int) map[string][]storage {
	of := map[string][]storage{}
	for _, s := range tables {
		command := t.command(s, mode)
		of[command] = append(of[command], s)
	}
	return of
}

// vacuuming is what the option has the task vacuum, and how: those first that the run deleted most from.
func (t *task) vacuuming(ctx context.Context) (mode int, tables []storage, err error) {
	mode, err = t.given.Options.Statistics()
	if err != nil {
		t.log(ctx, severity.Warning, err.Error())
	}
	if mode == campaign.NoStatistics {
		t.log(ctx, severity.Info, "Option 'XtkCleanup_NoStats' is set to '1'")
		return mode, nil, nil
	}
	emptied, err := t.journal.Emptied(ctx, "")
	if err != nil {
		return mode, nil, fmt.Errorf("list the tables: %w", err)
	}
	if tables, err = t.storages(ctx, true, emptied, true); err != nil {
		return mode, nil, err
	}
	others, err := t.storages(ctx, false, nil, true)
	if len(others) > 0 {
		t.log(
			ctx,
			severity.Info,
			fmt.Sprintf(
				"%d tables of %s belong to another role, which alone may vacuum them: left to autovacuum",
				len(others),
				t.given.Catalog.Schema,
			),
		)
	}
	return mode, tables, err
}

// optimizeStorage does what the option says, for a task that vacuums: table by table, so that there is progress to
// show, beginning with those that the run deleted most from, and with SKIP_LOCKED, so that nothing waits.
func (t *task) optimizeStorage(ctx context.Context) (bool, error) {
	if !t.plan.Task.Vacuums {
		return false, nil
	}
	mode, tables, err := t.vacuuming(ctx)
	switch {
	case err != nil:
		return false, err
	case mode == campaign.NoStatistics:
		return true, nil
	case !t.DryRun:
		return true, t.vacuum(ctx, mode, tables)
	}
	commands := t.byCommand(tables, mode)
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		t.log(ctx, severity.Info, fmt.Sprintf("would run %s on %d tables", command, len(commands[command])))
	}
	return true, nil
}

// vacuumEmptied does with what a task behind statistics has emptied, if anything, what that task would have done.
func (t *task) vacuumEmptied(ctx context.Context, task string) error {
	mode, _ := t.given.Options.Statistics() // the task statistics has said what is wrong with it
	if mode == campaign.NoStatistics || t.DryRun || !t.Succeeded[plan.Vacuum] {
		return nil
	}
	emptied, err := t.journal.Emptied(ctx, task)
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	tables, err := t.storages(ctx, true, emptied, false)
	if err != nil || len(tables) == 0 {
		return err
	}
	t.cursor = purge.Cursor{} // it was that of a sweep
	return t.vacuum(ctx, mode, tables)
}

// vacuum does what a mode of the task statistics says with tables: all of them, or those that a previous worker has
// left.
func (t *task) vacuum(ctx context.Context, mode int, tables []storage) error {
	said := &vacuumLog{flushed: time.Now()}
	conn, err := t.verboseConn(ctx, said.add)
	if err != nil && t.Pool.Ping(ctx) == nil { // the server is well: it, or a pooler, grants no more
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf("no connection is free for VACUUM, which is left to autovacuum: %v", err),
		)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		_ = conn.Close(context.WithoutCancel(ctx))
		t.log(ctx, severity.Info, said.flush()...)
	}()
	var failed []error
	locked := 0
	done := slices.IndexFunc(tables, func(s storage) bool { return s.Quoted() == t.cursor.Unit })
	if done >= 0 {
		t.left = t.cursor.Before
	}
	for _, s := range tables[done+1:] {
		name, command := s.Quoted(), t.command(s, mode)
		t.journal.At(s.Schema+"."+s.Name, -1)
		var sizes []purge.Space
		if !s.Parent {
			sizes = append(sizes, purge.Space{Relation: name})
		}
		err := t.vacuumed(ctx, name, sizes...)
		if err == nil {
			_, err = conn.Exec(ctx, command+" "+name)
		}
		if err != nil || said.due() {
			t.log(ctx, severity.Info, said.flush()...)
		}
		switch {
		case endsRun(err) || sqlstate.Lost(err):
			return err
		case sqlstate.Is(err, pgerrcode.LockNotAvailable): // or an index of it, or a partition
			t.log(ctx, severity.Warning, name+" is locked by someone: passed over")
			locked++
		case err != nil && !t.vanished(ctx, err, name):
			failed = append(failed, fmt.Errorf("%s %s: %w", command, name, err))
			t.log(ctx, severity.Warning, name+": VACUUM or ANALYZE failed: "+purge.Message(err))
			t.left.Tables++
		}
		t.cursor.Unit, t.cursor.Before = name, t.left
	}
	n := len(tables) - done - 1
	t.log(ctx, severity.Info, said.flush()...)
	t.log(
		ctx,
		severity.Info,
		fmt.Sprintf(
			"%d tables: %d done, %d locked by someone, %d failed",
			n,
			n-locked-len(failed),
			locked,
			len(failed),
		),
	)
	if len(failed) > 0 && len(failed) == n {
		return fmt.Errorf("all %d tables failed, the first of them with: %w", len(failed), failed[0])
	}
	return t.vacuumed(ctx, "the last table")
}

// vacuumed records which table was done last, and the size of the next one, for whose lock it waits only briefly.
func (t *task) vacuumed(ctx context.Context, what string, next ...purge.Space) error {
	return t.inBatch(ctx, what, func(tx Tx) (purge.Delta, error) {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100")
		return purge.Delta{Space: next, Cursor: t.cursor}, err
	})
}

// verboseConn opens a connection that passes on PostgreSQL's notices. It is not from the pool, since the handler of
// notices is set when connecting.
func (t *task) verboseConn(ctx context.Context, notice func(*pgconn.Notice)) (*pgx.Conn, error) {
	config := t.Pool.Config()
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notice(n) }
	// A large table may take hours, but waiting for a lock must not.
	settings := map[string]string{"statement_timeout": "24h", "lock_timeout": "2s"}
	if t.given.Catalog.Version >= 170_000 {
		settings["transaction_timeout"] = "0"
	}
	connection.Set(config.ConnConfig, settings)
	conn, err := connection.Connect(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect for VACUUM: %w", err)
	}
	return conn, nil
}

// linesAtOnce and flushEvery limit what is logged at once of tables that are vacuumed, so that hundreds of tables make
// a few events.
const (
	linesAtOnce = 100
	flushEvery  = 10 * time.Second
)

// vacuumLog collects the lines in which PostgreSQL says which tables it vacuums and analyzes.
type vacuumLog struct {
	lines   []string
	flushed time.Time
}

// add adds a notice, unless it is about a TOAST table or tells details, such as the pages that were scanned. The
// functions of the server that send the notices are the same in all languages.
func (l *vacuumLog) add(n *pgconn.Notice) {
	if slices.Contains([]string{"heap_vacuum_rel", "do_analyze_rel"}, n.Routine) &&
		!strings.ContainsRune(n.Message, '\n') &&
		!strings.Contains(n.Message, "pg_toast.") {
		l.lines = append(l.lines, n.Severity+":  "+n.Message)
	}
}

// due reports whether the lines are to be logged now.
func (l *vacuumLog) due() bool {
	return len(l.lines) >= linesAtOnce || time.Since(l.flushed) >= flushEvery
}

// flush returns the lines as one message, or none if there are no lines, and begins anew.
func (l *vacuumLog) flush() (messages []string) {
	if len(l.lines) > 0 {
		messages = []string{strings.Join(l.lines, "\n")}
	}
	l.lines, l.flushed = nil, time.Now()
	return messages
}
