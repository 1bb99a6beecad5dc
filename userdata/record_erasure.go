package userdata

import (
	"context"
	"embed"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

//go:embed migrations/*.sql
var migrations embed.FS

func Migrate(ctx context.Context, conn *pgx.Conn) error {
	return migrate.Up(ctx, conn, migrations, "forms_schema_version")
}

func MigrationPending(ctx context.Context, conn *pgx.Conn) (bool, error) {
	return migrate.Pending(ctx, conn, migrations, "forms_schema_version")
}

// SchemaSQL returns the statements that create the tables. It adds no rows.
func SchemaSQL() (string, error) { return migrate.SQL(migrations, "forms_schema_version") }

// Erasure identifies an erasure and its Forms database.
type record struct {
	ID      string
	FormsID string
}

// ErrTaken means that another replica works on the erasure and has already recorded this change.
var errTaken = errors.New("another replica works on the erasure")

// Transient reports whether a transaction of the record may succeed when it is tried again.
func isTransient(err error) bool {
	return sqlstate.Is(err, pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.LockNotAvailable)
}

// Execer is a pool, a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func (e record) exec(ctx context.Context, db execer, sql string, args ...any) (int64, error) {
	tag, err := db.Exec(ctx, sql, append([]any{e.ID}, args...)...)
	return tag.RowsAffected(), err
}

// Any replica may take over an erasure whose run has been silent for abandonedAfter leases.
const abandonedAfter = 20

// Unfinished returns erasures that any replica may work on: those that users requested, and those of purges that
// were abandoned by their runs.
func unfinishedErasures(ctx context.Context, db external.Querier, forms string, lease time.Duration) ([]string, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT id::text FROM cleanupd.erasure WHERE forms_id = $1 AND (state = 'RUNNING'
		OR state = 'PURGING' AND heartbeat < clock_timestamp() - $2::bigint * interval '1 microsecond') ORDER BY id`,
		forms, (abandonedAfter * lease).Microseconds(),
	)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

type state struct {
	Ended bool
	Sweep bool
	Purge *criteria // nil if a user requested the erasure
}

func (e record) readState(ctx context.Context, db external.Querier) (s state, err error) {
	err = db.QueryRow(ctx, "SELECT state NOT IN ('RUNNING', 'PURGING'), sweep, purge FROM cleanupd.erasure "+
		"WHERE id = $1::text::uuid", e.ID).
		Scan(&s.Ended, &s.Sweep, &s.Purge)
	return s, err
}

func (e record) beat(ctx context.Context, db execer) error {
	_, err := e.exec(ctx, db, "UPDATE cleanupd.erasure SET heartbeat = clock_timestamp() WHERE id = $1::text::uuid")
	return err
}

// End does nothing if the erasure has already ended. The erasure fails if failed is true, if an item has failed, or
// if documents are left.
func (e record) end(ctx context.Context, tx pgx.Tx, failed bool) error {
	n, err := e.exec(ctx, tx, `UPDATE cleanupd.erasure AS e SET end_time = clock_timestamp(), state = CASE WHEN $2
		OR EXISTS (SELECT FROM cleanupd.erasure_item WHERE erasure_id = e.id AND state <> 'DONE')
		OR EXISTS (SELECT FROM cleanupd.erasure_session WHERE erasure_id = e.id)
		THEN 'FAILED' ELSE 'SUCCEEDED' END WHERE id = $1::text::uuid AND state IN ('RUNNING', 'PURGING')`, failed)
	if err != nil || n == 0 {
		return err
	}
	return e.appendEvents(ctx, tx, Event{Ended: true})
}
