package runs

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// presentEvery is how often a replica tells of itself, and presentFor how long it is taken to be there after that.
const (
	presentEvery = 30 * time.Second
	presentFor   = 2 * time.Minute
)

// Replica is a process of the service.
type Replica struct {
	Name      string
	Version   string
	Schedule  bool // it starts the runs of the schedule
	StartTime time.Time
	SeenTime  time.Time
}

// present tells of this replica, and forgets those that have long been silent.
func (m *Manager) present(ctx context.Context) error {
	_, err := m.calls.Exec(
		ctx,
		`WITH gone AS (DELETE FROM cleanupd.replica WHERE seen_time < clock_timestamp() - interval '1 day'
			AND name <> $1)
		INSERT INTO cleanupd.replica (name, version, schedule) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET version = $2, schedule = $3, seen_time = clock_timestamp()`,
		m.replica,
		m.version,
		m.keepSchedule,
	)
	return err
}

// absent tells that this replica has stopped.
func (m *Manager) absent(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := m.calls.Exec(ctx, "DELETE FROM cleanupd.replica WHERE name = $1", m.replica); err != nil {
		m.log.Warn("cannot tell the others that this replica stops", "error", err)
	}
}

// About is what a service is, as a replica of it knows.
type About struct {
	Replica  string // the one that was asked
	Version  string // its version
	Instance string
	Database string // its name
	Replicas []Replica
	History  time.Duration
	PlanAge  time.Duration // the greatest
}

// About returns what the service is.
func (m *Manager) About(ctx context.Context) (*About, error) {
	rows, err := m.calls.Query(
		ctx,
		"SELECT name, version, schedule, start_time, seen_time FROM cleanupd.replica WHERE seen_time > "+
			"clock_timestamp() - $1::interval ORDER BY name",
		presentFor,
	)
	if err != nil {
		return nil, err
	}
	replicas, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Replica])
	if err != nil {
		return nil, err
	}
	return &About{
		Replica:  m.replica,
		Version:  m.version,
		Instance: m.instance,
		Database: m.calls.Config().ConnConfig.Database,
		Replicas: replicas,
		History:  m.history,
		PlanAge:  m.planMaxAge,
	}, nil
}
