package cleanup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

type Storage struct {
	OID          uint32
	Schema, Name string
	// Parent is set for a partitioned table, whose rows are in its partitions.
	Parent bool
}

func (s Storage) Quoted() string { return pgx.Identifier{s.Schema, s.Name}.Sanitize() }

// storages returns tables of the application's schema $1 and the service's own, and emptied tables ($3). If $2 is set,
// it returns tables that the role can vacuum, as their owner or, since PostgreSQL 17, by a grant; otherwise the others.
// Emptied tables come first, in their order, and parents after their partitions. Unless $4 is set, it returns only the
// emptied tables and their parents. Parents of foreign tables are left out, since ANALYZE would read these from their
// server. Nothing in this query waits for a lock, as pg_partition_tree would.
const storages = `
WITH emptied AS (SELECT to_regclass(name)::oid AS oid, place
  FROM unnest($3::text[]) WITH ORDINALITY AS given (name, place)),
tree AS (SELECT oid FROM emptied UNION SELECT a.relid FROM emptied, pg_partition_ancestors(emptied.oid) a)
SELECT c.oid, n.nspname, c.relname, c.relkind = 'p' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT
  JOIN emptied ON emptied.oid = c.oid
WHERE (n.nspname IN ($1, 'cleanupd') OR c.oid IN (SELECT oid FROM tree)) AND c.relkind IN ('r', 'm', 'p') AND
	c.relpersistence <> 't'
  AND (pg_has_role(c.relowner, 'USAGE') OR CASE WHEN current_setting('server_version_num')::int >= 170000
    THEN has_table_privilege(c.oid, 'MAINTAIN') END IS TRUE) = $2
  AND NOT EXISTS (SELECT FROM pg_class f, pg_partition_ancestors(f.oid) a WHERE f.relkind = 'f' AND a.relid = c.oid)
  AND ($4 OR c.oid IN (SELECT oid FROM tree))
ORDER BY CASE c.relkind WHEN 'p' THEN (SELECT count(*)
  FROM pg_partition_ancestors(c.oid)) END DESC NULLS FIRST, emptied.place, n.nspname, c.relname`

// allStorage returns all tables that the role may vacuum, the emptied ones first. others is how many belong to other
// roles.
func allStorage(
	ctx context.Context, db campaign.Querier, schema string, emptied []string,
) (own []Storage, others int, err error) {
	if own, err = listStorage(ctx, db, schema, true, emptied, true); err != nil {
		return nil, 0, err
	}
	foreign, err := listStorage(ctx, db, schema, false, nil, true)
	return own, len(foreign), err
}

// emptiedStorage returns the emptied tables, given by their quoted names, and their parents, without those that the
// role cannot vacuum.
func emptiedStorage(ctx context.Context, db campaign.Querier, schema string, emptied []string) ([]Storage, error) {
	return listStorage(ctx, db, schema, true, emptied, false)
}

func listStorage(
	ctx context.Context, db campaign.Querier, schema string, own bool, emptied []string, all bool,
) ([]Storage, error) {
	rows, _ := db.Query(ctx, storages, schema, own, emptied, all)
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Storage])
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return tables, nil
}

type VacuumCommander struct {
	Catalog *campaign.Catalog
	// Mode is the mode of the option XtkCleanup_NoStats, as campaign.Options.Statistics returns it.
	Mode int
	// Truncate lets VACUUM return free space at the end of a table to the file system, for which it locks the table
	// exclusively.
	Truncate bool
}

// Command returns the command for a table, without its name. VACUUM of a parent would vacuum its partitions again,
// and so would ANALYZE before PostgreSQL 18. A parent needs ANALYZE, since autovacuum never analyzes parents. Citus
// does not forward an ANALYZE with SKIP_LOCKED.
func (c VacuumCommander) Command(s Storage) string {
	analyze := s.Parent || c.Mode == campaign.AnalyzeOnly
	switch {
	case analyze && c.Catalog.Locations[s.OID] == campaign.Distributed:
		return "ANALYZE (VERBOSE)"
	case s.Parent && c.Catalog.Version >= 180_000:
		return "ANALYZE (VERBOSE, SKIP_LOCKED) ONLY"
	case analyze:
		return "ANALYZE (VERBOSE, SKIP_LOCKED)"
	case c.Truncate:
		return "VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED)"
	}
	return "VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED, TRUNCATE false)"
}

type vacuumGroup struct {
	Command string
	Tables  []Storage
}

func (c VacuumCommander) Groups(tables []Storage) (groups []vacuumGroup) {
	byCommand := map[string][]Storage{}
	for _, s := range tables {
		command := c.Command(s)
		byCommand[command] = append(byCommand[command], s)
	}
	for _, command := range slices.Sorted(maps.Keys(byCommand)) {
		groups = append(groups, vacuumGroup{command, byCommand[command]})
	}
	return groups
}

// PrepareVacuum returns the tables to vacuum, and logs how many belong to other roles. Tables from which the run
// deleted most come first. There are none if the option XtkCleanup_NoStats turns vacuuming off.
func PrepareVacuum(ctx context.Context, a *Attempt, truncate bool) (c VacuumCommander, tables []Storage, err error) {
	env := a.Binder.Env
	c = VacuumCommander{Catalog: env.Catalog, Truncate: truncate}
	if c.Mode, err = env.Options.Statistics(); err != nil {
		a.Log(ctx, message.StatisticsOptionUnusable.With("error", err))
	}
	if c.Mode == campaign.NoStatistics {
		a.Log(ctx, message.Infof("Option 'XtkCleanup_NoStats' is set to '1'"))
		return c, nil, nil
	}
	emptied, err := a.Journal().Emptied(ctx, "")
	if err != nil {
		return c, nil, fmt.Errorf("list the tables: %w", err)
	}
	tables, others, err := allStorage(ctx, a.Binder.Pool, env.Catalog.Schema, emptied)
	if others > 0 {
		const left = "%d tables of %s belong to another role: left to autovacuum"
		text := fmt.Sprintf(left, others, env.Catalog.Schema)
		if env.Catalog.Version >= 170_000 {
			text += fmt.Sprintf("; to have them vacuumed: GRANT MAINTAIN ON ALL TABLES IN SCHEMA %s TO %s",
				pgx.Identifier{env.Catalog.Schema}.Sanitize(), pgx.Identifier{env.Catalog.Role}.Sanitize())
		}
		a.Log(ctx, message.Infos(text)...)
	}
	return c, tables, err
}

// These limit one log message, so that hundreds of tables make a few messages.
const (
	maxLines   = 100
	flushEvery = 10 * time.Second
)

// VacuumOutput collects the notices in which PostgreSQL names the tables that it vacuums and analyzes, or skips.
type VacuumOutput struct {
	lines   []string
	flushed time.Time

	table   Storage // the table of the current command
	begun   bool    // whether the server has begun a table
	skipped error
}

func NewVacuumOutput() *VacuumOutput { return &VacuumOutput{flushed: time.Now()} }

func (o *VacuumOutput) Start(s Storage) { o.table, o.begun, o.skipped = s, false, nil }

// Skipped returns the notice by which PostgreSQL skipped the table of the current command, or a part of the
// command, with its SQLSTATE; nil if it did not skip anything.
func (o *VacuumOutput) Skipped() error { return o.skipped }

// Add adds a notice. It leaves out notices about a TOAST table or with details, such as the pages that were
// scanned. Notices are recognized by the functions of the server that send them, which are the same in all
// languages.
func (o *VacuumOutput) Add(n *pgconn.Notice) {
	switch {
	case isSkip(n):
		// ANALYZE of a parent begins with the parent. Partitions that it skips later have their own commands.
		if !o.table.Parent || !o.begun {
			o.skipped = (*pgconn.PgError)(n)
		}
	case slices.Contains([]string{"heap_vacuum_rel", "do_analyze_rel"}, n.Routine),
		// before PostgreSQL 15 this is among details that have the name without the schema
		n.Routine == "lazy_scan_heap" && strings.Contains(n.Message, o.table.Schema+"."+o.table.Name):
		o.begun = true
		if !strings.ContainsRune(n.Message, '\n') && !strings.Contains(n.Message, "pg_toast.") {
			o.lines = append(o.lines, n.Severity+":  "+n.Message)
		}
	}
}

// isSkip reports whether the server skips a table, because of a lock or because of the table's owner.
func isSkip(n *pgconn.Notice) bool {
	switch n.Routine {
	case "expand_vacuum_rel", "vacuum_open_relation":
		return n.Code == pgerrcode.LockNotAvailable // with another code, the table was dropped
	case "vacuum_is_relation_owner", "vacuum_is_permitted_for_relation": // the names before and since PostgreSQL 16
		return true
	}
	return false
}

func (o *VacuumOutput) Due() bool {
	return len(o.lines) >= maxLines || time.Since(o.flushed) >= flushEvery
}

// Flush returns the lines as one message; none if there are no lines.
func (o *VacuumOutput) Flush() (messages []string) {
	if len(o.lines) > 0 {
		messages = []string{strings.Join(o.lines, "\n")}
	}
	o.lines, o.flushed = nil, time.Now()
	return messages
}

// vacuumAll vacuums or analyzes tables, depending on the option XtkCleanup_NoStats: one after another, to show
// progress, and first those from which the run deleted most. SKIP_LOCKED keeps it from waiting.
func (t *executedTask) vacuumAll(ctx context.Context) (bool, error) {
	if !t.Task.Vacuums {
		return false, nil
	}
	commands, tables, err := PrepareVacuum(ctx, t.Attempt, t.run.Config.VacuumTruncate)
	if err != nil || commands.Mode == campaign.NoStatistics {
		return err == nil, err
	}
	return true, t.vacuum(ctx, commands, tables)
}

// vacuumEmptied vacuums the tables from which a task has deleted rows, if the task runs after the task statistics,
// or if the pipeline has no task statistics.
func (t *executedTask) vacuumEmptied(ctx context.Context) error {
	mode, _ := t.Binder.Env.Options.Statistics() // the task statistics has logged the error
	if mode == campaign.NoStatistics || (!t.run.State.Succeeded[rules.StatisticsTask] && !t.run.Config.NoCampaign) {
		return nil
	}
	emptied, err := t.journal.Emptied(ctx, t.Task.Name)
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	catalog := t.Binder.Env.Catalog
	tables, err := emptiedStorage(ctx, t.Binder.Pool, catalog.Schema, emptied)
	if err != nil || len(tables) == 0 {
		return err
	}
	*t.Cursor = purge.Cursor{} // the cursor was that of a sweep
	commands := VacuumCommander{Catalog: catalog, Mode: mode, Truncate: t.run.Config.VacuumTruncate}
	return t.vacuum(ctx, commands, tables)
}

// vacuum vacuums or analyzes tables. A previous worker may have done some of them.
func (t *executedTask) vacuum(ctx context.Context, commands VacuumCommander, tables []Storage) error {
	output := NewVacuumOutput()
	conn, err := connectForVacuum(ctx, t.Binder, output)
	// If the server answers, then it, or a pooler, grants no more connections.
	if err != nil && !errors.Is(err, connection.ErrCredentials) && t.Binder.Pool.Ping(ctx) == nil {
		t.Log(ctx, message.VacuumUnavailable.With("error", err))
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		_ = conn.Close(context.WithoutCancel(ctx))
		t.Log(ctx, message.Infos(output.Flush()...)...)
	}()
	last := slices.IndexFunc(tables, func(s Storage) bool { return s.Quoted() == t.Cursor.Unit })
	if last >= 0 {
		t.Retained = t.Cursor.Before
	}
	tables = tables[last+1:]
	var failed []error
	locked := 0
	for _, s := range tables {
		name, command := s.Quoted(), commands.Command(s)
		failure, err := t.vacuumOne(ctx, conn, output, s, command)
		if err != nil {
			failure = err
		}
		if failure != nil || output.Due() {
			t.Log(ctx, message.Infos(output.Flush()...)...)
		}
		switch {
		case endsAttempt(err) || sqlstate.Lost(err):
			return err
		case sqlstate.Is(failure, pgerrcode.LockNotAvailable): // the table, an index of it or a partition is locked
			t.Log(ctx, message.VacuumLocked.With("table", name))
			locked++
			if t.Task.Vacuums { // other tasks are done with the table: they deleted its rows
				t.Retained.Tables++
			}
		case failure != nil && !campaign.Dropped(ctx, t.Binder.Pool, failure, name):
			failed = append(failed, fmt.Errorf("%s %s: %w", command, name, failure))
			t.Log(ctx, message.VacuumFailed.With("table", name, "error", purge.Message(failure)))
			t.Retained.Tables++
		}
		t.Cursor.Unit, t.Cursor.Before = name, t.Retained
	}
	t.Log(ctx, message.Infos(output.Flush()...)...)
	t.Log(ctx,
		message.Infof("%d tables: %d done, %d locked by others, %d failed", len(tables), len(tables)-locked-len(failed),
			locked, len(failed)))
	if len(failed) > 0 && len(failed) == len(tables) {
		return fmt.Errorf( // wraps none of them, since the SQLSTATE may suggest that the database is lost
			"all %d tables failed, the first of them with: %s", len(failed), sqlstate.Explain(failed[0]),
		)
	}
	return t.recordVacuumed(ctx, "the last table")
}

// vacuumOne vacuums one table, and returns the table's own failure separately from other errors. It is a failure if
// the server skipped the table, or reported an error and kept the connection: the database is then not lost, even
// if the SQLSTATE suggests it. A full disk is an error, so that the run waits for space.
func (t *executedTask) vacuumOne(
	ctx context.Context, conn *pgx.Conn, output *VacuumOutput, s Storage, command string,
) (failure, err error) {
	t.journal.At(s.Schema+"."+s.Name, -1)
	var sizes []purge.Space
	if !s.Parent {
		sizes = append(sizes, purge.Space{Relation: s.Quoted()})
	}
	if err := t.recordVacuumed(ctx, s.Quoted(), sizes...); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, vacuumDelay(t.Binder.Engine.Pace.Get())); err != nil {
		return nil, err
	}
	output.Start(s)
	_, err = conn.Exec(ctx, command+" "+s.Quoted())
	switch {
	case err == nil:
		return output.Skipped(), nil
	case conn.IsClosed(), sqlstate.LibraryMissing(err), sqlstate.Is(err, pgerrcode.DiskFull):
		return nil, err
	}
	return err, nil
}

// vacuumDelay returns the setting of VACUUM's delay. With the gentle pace, VACUUM gives way as autovacuum does by
// default; otherwise the server's settings apply.
func vacuumDelay(p pace.Pace) string {
	if p == pace.Gentle {
		return "SET vacuum_cost_delay = 2" // milliseconds
	}
	return "RESET vacuum_cost_delay"
}

// recordVacuumed records the cursor, and the size of the next table. It waits only briefly for the lock of that
// table.
func (t *executedTask) recordVacuumed(ctx context.Context, name string, next ...purge.Space) error {
	return t.inBatch(ctx, name, func(tx pgx.Tx) (purge.Delta, error) {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100")
		return purge.Delta{Space: next, Cursor: *t.Cursor}, err
	})
}

// connectForVacuum connects to the database, and adds PostgreSQL's notices to output. The connection is not from
// the pool, because the handler of notices can be set only when connecting.
func connectForVacuum(ctx context.Context, b *rules.Binder, output *VacuumOutput) (*pgx.Conn, error) {
	config := b.Pool.Config()
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { output.Add(n) }
	// A large table may take hours, but waiting for a lock must not. Warnings say which tables are skipped.
	settings := map[string]string{"statement_timeout": "24h", "lock_timeout": "2s", "client_min_messages": "warning"}
	if b.Env.Catalog.Version >= 170_000 {
		settings["transaction_timeout"] = "0"
	}
	connection.Set(config.ConnConfig, settings)
	conn, err := connection.Connect(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect for VACUUM: %w", err)
	}
	return conn, nil
}
