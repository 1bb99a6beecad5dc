package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/vacuum"
)

// vacuumAll does what the option XtkCleanup_NoStats says, table by table, so that there is progress to show, starting
// with the tables that the run deleted most from, and with SKIP_LOCKED, so that nothing waits.
func (t *task) vacuumAll(ctx context.Context) (bool, error) {
	if !t.Task.Vacuums {
		return false, nil
	}
	commands, tables, err := vacuum.Prepare(ctx, t.Attempt, t.run.Config.VacuumTruncate)
	if err != nil || commands.Mode == campaign.NoStatistics {
		return err == nil, err
	}
	return true, t.vacuum(ctx, commands, tables)
}

// vacuumEmptied vacuums what a task after statistics has deleted from, or what any task has in a database whose
// pipeline has no statistics.
func (t *task) vacuumEmptied(ctx context.Context) error {
	mode, _ := t.Binder.Env.Options.Statistics() // the task statistics has logged the error
	if mode == campaign.NoStatistics || (!t.run.State.Succeeded[plan.StatisticsTask] && !t.run.Config.NoCampaign) {
		return nil
	}
	emptied, err := t.journal.Counts.Emptied(ctx, t.Task.Name)
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	catalog := t.Binder.Env.Catalog
	tables, err := vacuum.Emptied(ctx, t.Binder.Pool, catalog.Schema, emptied)
	if err != nil || len(tables) == 0 {
		return err
	}
	*t.Cursor = purge.Cursor{} // it was that of a sweep
	commands := vacuum.Commander{Catalog: catalog, Mode: mode, Truncate: t.run.Config.VacuumTruncate}
	return t.vacuum(ctx, commands, tables)
}

// A previous worker may have done some of the tables.
func (t *task) vacuum(ctx context.Context, commands vacuum.Commander, tables []vacuum.Storage) error {
	output := vacuum.NewOutput()
	conn, err := connectForVacuum(ctx, t.Binder, output)
	// If the server is well, it, or a pooler, grants no more connections.
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
	last := slices.IndexFunc(tables, func(s vacuum.Storage) bool { return s.Quoted() == t.Cursor.Unit })
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
		case pipeline.EndsAttempt(err) || sqlstate.Lost(err):
			return err
		case sqlstate.Is(failure, pgerrcode.LockNotAvailable): // or an index of it, or a partition
			t.Log(ctx, message.VacuumLocked.With("table", name))
			locked++
			if t.Task.Vacuums { // other tasks have finished the table: they deleted its rows
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

// vacuumOne returns the table's own failure separately: the server skipped the table, or reported an error and kept the
// connection, so that the database is not lost, even if the SQLSTATE suggests it. It waits while the disk is full.
func (t *task) vacuumOne(
	ctx context.Context, conn *pgx.Conn, output *vacuum.Output, s vacuum.Storage, command string,
) (failure, err error) {
	t.journal.Progress.At(s.Schema+"."+s.Name, -1)
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

// With the gentle pace VACUUM gives way as autovacuum does by default, otherwise as the server's settings say.
func vacuumDelay(p pace.Pace) string {
	if p == pace.Gentle {
		return "SET vacuum_cost_delay = 2" // milliseconds
	}
	return "RESET vacuum_cost_delay"
}

// recordVacuumed also records the size of the next table. It waits only briefly for that table's lock.
func (t *task) recordVacuumed(ctx context.Context, name string, next ...purge.Space) error {
	return t.inBatch(ctx, name, func(tx pgx.Tx) (purge.Delta, error) {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100")
		return purge.Delta{Space: next, Cursor: *t.Cursor}, err
	})
}

// PostgreSQL's notices are added to output. The connection is not from the pool, since the handler of notices is set
// when connecting.
func connectForVacuum(ctx context.Context, b *binding.Binder, output *vacuum.Output) (*pgx.Conn, error) {
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
