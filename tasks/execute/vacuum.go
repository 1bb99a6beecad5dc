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

// vacuumAll vacuums or analyzes tables as the option XtkCleanup_NoStats says. It takes one table after another, to
// show progress, and begins with those from which the run deleted most. SKIP_LOCKED keeps it from waiting.
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

// vacuumEmptied vacuums the tables from which a task has deleted rows, if the task runs after the task statistics,
// or if the pipeline has no task statistics.
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
	*t.Cursor = purge.Cursor{} // the cursor was that of a sweep
	commands := vacuum.Commander{Catalog: catalog, Mode: mode, Truncate: t.run.Config.VacuumTruncate}
	return t.vacuum(ctx, commands, tables)
}

// vacuum vacuums or analyzes tables. A previous worker may have done some of them.
func (t *task) vacuum(ctx context.Context, commands vacuum.Commander, tables []vacuum.Storage) error {
	output := vacuum.NewOutput()
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
func (t *task) recordVacuumed(ctx context.Context, name string, next ...purge.Space) error {
	return t.inBatch(ctx, name, func(tx pgx.Tx) (purge.Delta, error) {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100")
		return purge.Delta{Space: next, Cursor: *t.Cursor}, err
	})
}

// connectForVacuum connects to the database, and adds PostgreSQL's notices to output. The connection is not from
// the pool, because the handler of notices can be set only when connecting.
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
