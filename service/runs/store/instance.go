package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Owner decides whether a service may change a database. Only the instance that owns the database may, and only in the
// original, not in a copy. Every transaction that changes something asks the Owner first.
type Owner struct {
	name    string
	log     *slog.Logger
	foreign atomic.Bool // whether Owns has logged that another instance owns the database
}

func NewOwner(name string, log *slog.Logger) *Owner { return &Owner{name: name, log: log} }

// Check fails like Own.
func (o *Owner) Check(ctx context.Context, db campaign.Querier) error { return Own(ctx, db, o.name) }

// Lock fails like Own, and keeps other instances from adopting the database until the transaction ends.
func (o *Owner) Lock(ctx context.Context, tx pgx.Tx) error {
	if err := lockIdentity(ctx, tx); err != nil {
		return err
	}
	return o.Check(ctx, tx)
}

// Owns reports whether this instance owns the database. It logs once when the instance loses the database.
func (o *Owner) Owns(ctx context.Context, db campaign.Querier) (bool, error) {
	err := o.Check(ctx, db)
	refusal := (*failure.Refusal)(nil)
	if !errors.As(err, &refusal) {
		o.foreign.Store(false)
		return err == nil, err
	}
	if !o.foreign.Swap(true) {
		o.log.Error("serving dry runs and reads only", "reason", err)
	}
	return false, nil
}

// OtherInstance is the reason why nothing is changed: another instance owns the database, or the database is a
// copy.
const OtherInstance = "INSTANCE"

// Own fails with a failure.Refusal with the reason OtherInstance. If no instance owns the database yet, it makes this
// one the owner.
func Own(ctx context.Context, db campaign.Querier, name string) error {
	stored, now, err := ReadIdentities(ctx, db)
	if err != nil {
		return fmt.Errorf("read the owning instance: %w", err)
	}
	now.Instance = name
	if stored.System == "" {
		return insertIdentity(ctx, db, now)
	}
	if stored == now {
		return nil
	}
	differences := strings.Join(compare(stored, now), "; ")
	return &failure.Refusal{
		Reason:   OtherInstance,
		Metadata: map[string]string{"instance": stored.Instance, "differs": differences},
		Message: fmt.Sprintf("this database is not cleaned by this service: %s; cleanupd adopt makes it its own",
			differences),
	}
}

func compare(stored, now Identity) (differences []string) {
	if stored.Instance != now.Instance {
		differences = append(differences,
			fmt.Sprintf("it belongs to the instance %q, and this is %q", stored.Instance, now.Instance))
	}
	if stored.System != now.System {
		differences = append(differences,
			fmt.Sprintf("its system identifier was %s, and is %s", stored.System, now.System))
	}
	if stored.DatabaseOID != now.DatabaseOID {
		differences = append(differences, fmt.Sprintf("its oid was %d, and is %d", stored.DatabaseOID, now.DatabaseOID))
	}
	return differences
}

// Identity identifies a database and the instance that cleans it.
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

// lockIdentity keeps other services from adopting the database until the transaction ends.
func lockIdentity(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT FROM cleanupd.instance FOR SHARE")
	return err
}

// insertIdentity does nothing if an identity is stored already.
func insertIdentity(ctx context.Context, db campaign.Querier, i Identity) error {
	return db.QueryRow(ctx, `WITH first AS (INSERT INTO cleanupd.instance (name, system_identifier, database_oid)
		VALUES ($1, $2, $3) ON CONFLICT (only_row) DO NOTHING RETURNING 1)
		SELECT count(*) FROM first`, i.Instance, i.System, i.DatabaseOID).
		Scan(new(int64))
}

type Adoption struct {
	From, To string
	// Runs are the active runs, which adoption ends.
	Runs []uuid.UUID
	// Scheduled means that the schedule is enabled, which adoption disables.
	Scheduled bool
}

func PreviewAdoption(ctx context.Context, db campaign.Querier, name string) (a Adoption, err error) {
	stored, now, err := ReadIdentities(ctx, db)
	if err != nil {
		return a, err
	}
	now.Instance = name
	a.From, a.To = describe(stored), describe(now)
	a.Runs, a.Scheduled, err = activeIDs(ctx, db)
	return a, err
}

func describe(i Identity) string {
	if i.System == "" {
		return "no instance"
	}
	return fmt.Sprintf("instance %q, system identifier %s, database oid %d", i.Instance, i.System, i.DatabaseOID)
}

// activeIDs returns the ids of the active runs, and whether the schedule is enabled.
func activeIDs(ctx context.Context, db campaign.Querier) (ids []uuid.UUID, scheduled bool, err error) {
	err = db.QueryRow(ctx, `SELECT ARRAY(SELECT id FROM cleanupd.run WHERE `+active+`
		ORDER BY create_time), EXISTS (SELECT FROM cleanupd.schedule WHERE enabled)`).
		Scan(&ids, &scheduled)
	return ids, scheduled, err
}

// SetIdentity stores the current identity of the database. It waits for transactions that called lockIdentity.
func SetIdentity(ctx context.Context, tx pgx.Tx, instance string) error {
	_, err := tx.Exec(ctx, `INSERT INTO cleanupd.instance (name, system_identifier, database_oid)
		SELECT $1, (SELECT system_identifier::text FROM pg_control_system()), oid FROM pg_database
			WHERE datname = current_database()
		ON CONFLICT (only_row) DO UPDATE
			SET name = excluded.name, system_identifier = excluded.system_identifier,
			database_oid = excluded.database_oid, adopt_time = clock_timestamp()`, instance)
	return err
}

type Replica struct {
	Name      string
	Version   string
	Schedule  bool // whether it starts the runs of the schedule
	StartTime time.Time
	SeenTime  time.Time
}

// RecordReplica stores that the replica is alive. It also deletes replicas that were last seen more than a day ago.
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
