// Package store has the SQL on the schema cleanupd for runs with their tasks and events, the ledger, the schedule,
// policies, holds, notifications, and the data that guards compare with. Packages audit, capacity, trash and userdata
// have tables of their own there.
//
// Its functions take the connection, pool or transaction to use, so that the caller decides which writes are atomic. A
// worker's writes are fenced by the epoch of its claim.
package store

import (
	"context"
	"embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

//go:embed migrations/*.sql
var migrations embed.FS

func Migrate(ctx context.Context, conn *pgx.Conn) error {
	return migrate.Up(ctx, conn, migrations, "schema_version")
}

func MigrationPending(ctx context.Context, conn *pgx.Conn) (bool, error) {
	return migrate.Pending(ctx, conn, migrations, "schema_version")
}

// SchemaSQL returns the SQL that creates the tables, without any rows.
func SchemaSQL() (string, error) { return migrate.SQL(migrations, "schema_version") }

// Timeout limits the short transactions of the service itself, so that a connection that does not answer cannot
// block a replica forever.
const Timeout = 10 * time.Second

type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// WriteProbe is a statement that changes nothing, and fails if the database is read-only or lacks the schema.
const WriteProbe = "UPDATE cleanupd.run SET epoch = epoch WHERE false"

// PruneRuns deletes runs that ended longer ago than history, one at a time because a run may have many events. It
// keeps the numbers that guards compare with for longer.
func PruneRuns(ctx context.Context, db Execer, history time.Duration) error {
	for {
		tag, err := db.Exec(ctx, `DELETE FROM cleanupd.run WHERE id = (
			SELECT id FROM cleanupd.run WHERE end_time < clock_timestamp() - $1::interval
				ORDER BY create_time LIMIT 1 FOR UPDATE SKIP LOCKED)`, history)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			break
		}
	}
	_, err := db.Exec(ctx, "DELETE FROM cleanupd.deletion WHERE start_time < clock_timestamp() - $1::interval",
		guard.TypicalPeriod)
	return err
}

// PruneDryRuns deletes the findings of dry runs that ended longer ago than age, and all but the last of their
// events, one run at a time. It skips a dry run whose plan an active run follows, or the next scheduled run will
// follow.
func PruneDryRuns(ctx context.Context, db campaign.Querier, age time.Duration) error {
	for {
		var pruned bool
		err := db.QueryRow(ctx, `WITH old AS (
			SELECT id, last_sequence FROM cleanupd.run AS d WHERE dry_run AND NOT pruned
				AND end_time < clock_timestamp() - $1::interval
			  AND NOT EXISTS (SELECT FROM cleanupd.run WHERE plan = d.id AND `+active+`)
			    AND NOT EXISTS (SELECT FROM cleanupd.schedule WHERE next_plan = d.id)
			ORDER BY end_time LIMIT 1 FOR UPDATE SKIP LOCKED),
		events AS (DELETE FROM cleanupd.event AS e USING old WHERE e.run_id = id AND e.sequence < last_sequence),
		previews AS (UPDATE cleanupd.event AS e
			SET body = jsonb_set(body, '{Run,Results}', (SELECT jsonb_agg(r - 'Preview')
			FROM jsonb_array_elements(body #> '{Run,Results}') AS r))
		  FROM old WHERE e.run_id = id AND e.sequence = last_sequence
		    AND jsonb_array_length(body #> '{Run,Results}') > 0),
		tasks AS (UPDATE cleanupd.task AS t SET preview = NULL, saved_plan = NULL FROM old WHERE t.run_id = id),
		runs AS (UPDATE cleanupd.run AS r SET pruned = true FROM old WHERE r.id = old.id)
		SELECT EXISTS (SELECT FROM old)`, age).Scan(&pruned)
		if err != nil || !pruned {
			return err
		}
	}
}
