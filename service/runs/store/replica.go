package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Replica is a process of the service.
type Replica struct {
	Name      string
	Version   string
	Schedule  bool // whether it starts the runs of the schedule
	StartTime time.Time
	SeenTime  time.Time
}

// RecordReplica stores that a replica is running, and deletes replicas that have been silent for a day.
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

// DeleteReplica stores that a replica has stopped.
func DeleteReplica(ctx context.Context, db Execer, name string) error {
	_, err := db.Exec(ctx, "DELETE FROM cleanupd.replica WHERE name = $1", name)
	return err
}

// Replicas reads the replicas that were seen lately.
func Replicas(ctx context.Context, db campaign.Querier, lately time.Duration) ([]Replica, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT name, version, schedule, start_time, seen_time FROM cleanupd.replica
			WHERE seen_time > clock_timestamp() - $1::interval ORDER BY name`,
		lately,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Replica])
}
