package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Identity says which database it is, and which instance cleans it.
type Identity struct {
	Instance    string
	System      string // the system identifier of the server; "" if no instance cleans the database
	DatabaseOID int64
}

// ReadIdentities returns the stored identity, and the current identity of the database, whose Instance is empty.
func ReadIdentities(ctx context.Context, db campaign.Querier) (stored, now Identity, err error) {
	err = db.QueryRow(
		ctx,
		`SELECT COALESCE(i.name, ''), COALESCE(i.system_identifier, ''), COALESCE(i.database_oid, 0),
			(SELECT system_identifier::text FROM pg_control_system()), d.oid::bigint
		FROM pg_database d LEFT JOIN cleanupd.instance i ON true WHERE d.datname = current_database()`,
	).Scan(&stored.Instance, &stored.System, &stored.DatabaseOID, &now.System, &now.DatabaseOID)
	return stored, now, err
}

// LockIdentity keeps other services from adopting the database until the transaction ends.
func LockIdentity(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT FROM cleanupd.instance FOR SHARE")
	return err
}

// InsertIdentity does nothing if an identity is stored already.
func InsertIdentity(ctx context.Context, db campaign.Querier, i Identity) error {
	return db.QueryRow(ctx, `WITH first AS (INSERT INTO cleanupd.instance (name, system_identifier, database_oid)
		VALUES ($1, $2, $3) ON CONFLICT (only_row) DO NOTHING RETURNING 1)
		SELECT count(*) FROM first`, i.Instance, i.System, i.DatabaseOID).
		Scan(new(int64))
}

// SetIdentity stores the current identity of the database. It waits for transactions that called LockIdentity.
func SetIdentity(ctx context.Context, tx pgx.Tx, instance string) error {
	_, err := tx.Exec(ctx, `INSERT INTO cleanupd.instance (name, system_identifier, database_oid)
		SELECT $1, (SELECT system_identifier::text FROM pg_control_system()), oid FROM pg_database
			WHERE datname = current_database()
		ON CONFLICT (only_row) DO UPDATE
			SET name = excluded.name, system_identifier = excluded.system_identifier,
			database_oid = excluded.database_oid, adopt_time = clock_timestamp()`, instance)
	return err
}

// ActiveIDs returns the ids of the active runs, and whether the schedule is enabled.
func ActiveIDs(ctx context.Context, db campaign.Querier) (ids []uuid.UUID, scheduled bool, err error) {
	err = db.QueryRow(ctx, `SELECT ARRAY(SELECT id FROM cleanupd.run WHERE `+active+`
		ORDER BY create_time), EXISTS (SELECT FROM cleanupd.schedule WHERE enabled)`).
		Scan(&ids, &scheduled)
	return ids, scheduled, err
}

type Replica struct {
	Name      string
	Version   string
	Schedule  bool // whether it starts the runs of the schedule
	StartTime time.Time
	SeenTime  time.Time
}

// RecordReplica stores that the replica is alive. It also deletes the replicas that have been silent for a day.
func RecordReplica(ctx context.Context, db Execer, name, version string, schedule bool) error {
	_, err := db.Exec(
		ctx,
		`WITH gone AS (DELETE FROM cleanupd.replica WHERE seen_time < clock_timestamp() - interval '1 day'
			AND name <> $1)
		INSERT INTO cleanupd.replica (name, version, schedule) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET version = $2, schedule = $3, seen_time = clock_timestamp()`,
		name, version, schedule,
	)
	return err
}

func DeleteReplica(ctx context.Context, db Execer, name string) error {
	_, err := db.Exec(ctx, "DELETE FROM cleanupd.replica WHERE name = $1", name)
	return err
}

func Replicas(ctx context.Context, db campaign.Querier, lately time.Duration) ([]Replica, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT name, version, schedule, start_time, seen_time FROM cleanupd.replica
			WHERE seen_time > clock_timestamp() - $1::interval ORDER BY name`,
		lately,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Replica])
}
