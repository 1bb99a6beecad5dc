package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// ForeignInstance is the reason for which a service changes nothing: the database is another one's, or a copy.
const ForeignInstance = "INSTANCE"

// identity is who cleans a database, and which one it is.
type identity struct {
	name, system string
	database     int64
}

// identities are the one that the database keeps, if any, and what it is now.
const identities = `
SELECT COALESCE(i.name, ''), COALESCE(i.system_identifier, ''), COALESCE(i.database_oid, 0),
  (SELECT system_identifier::text FROM pg_control_system()), d.oid::bigint
FROM pg_database d LEFT JOIN cleanupd.instance i ON true WHERE d.datname = current_database()`

// readIdentities returns what the database keeps, whose system identifier is empty if that is nothing, and what it is
// now, without a name.
func readIdentities(ctx context.Context, db campaign.Querier) (kept, now identity, err error) {
	err = db.QueryRow(ctx, identities).Scan(&kept.name, &kept.system, &kept.database, &now.system, &now.database)
	return kept, now, err
}

// differs says what is different about a database from what it keeps; nil: nothing is.
func (kept identity) differs(now identity) (what []string) {
	if kept.name != now.name {
		what = append(what, fmt.Sprintf("it belongs to the instance %q, and this is %q", kept.name, now.name))
	}
	if kept.system != now.system {
		what = append(what, fmt.Sprintf("its system identifier was %s, and is %s", kept.system, now.system))
	}
	if kept.database != now.database {
		what = append(what, fmt.Sprintf("its oid was %d, and is %d", kept.database, now.database))
	}
	return what
}

// Own makes a database that nobody cleans yet that of an instance. It fails with a RefusedError of the reason
// ForeignInstance if it is another one's, or a copy: nothing may be changed there then.
func Own(ctx context.Context, db campaign.Querier, name string) error {
	kept, now, err := readIdentities(ctx, db)
	if err != nil {
		return fmt.Errorf("ask whose database it is: %w", err)
	}
	now.name = name
	if kept.system == "" {
		return db.QueryRow(ctx, `WITH first AS (INSERT INTO cleanupd.instance (name, system_identifier, database_oid)
			VALUES ($1, $2, $3) ON CONFLICT (only_row) DO NOTHING RETURNING 1)
			SELECT count(*) FROM first`, name, now.system, now.database).
			Scan(new(int64))
	}
	what := kept.differs(now)
	if what == nil {
		return nil
	}
	return &refused.Error{
		Reason:   ForeignInstance,
		Metadata: map[string]string{"instance": kept.name, "differs": strings.Join(what, "; ")},
		Message: fmt.Sprintf(
			"this database is not cleaned by this service: %s; cleanupd adopt makes it its own",
			strings.Join(what, "; "),
		),
	}
}

// Own is that of the manager's instance.
func (m *Manager) Own(ctx context.Context, db campaign.Querier) error {
	return Own(ctx, db, m.instance)
}

// keepOwn fails as Own does, and keeps others from adopting the database until the transaction ends.
func (m *Manager) keepOwn(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT FROM cleanupd.instance FOR SHARE"); err != nil {
		return err
	}
	return m.Own(ctx, tx)
}

// owns reports whether the database is the manager's, and says so once if it is not.
func (m *Manager) owns(ctx context.Context) (bool, error) {
	err := m.Own(ctx, m.pool)
	refused := (*refused.Error)(nil)
	if !errors.As(err, &refused) {
		m.foreign.Store(false)
		return err == nil, err
	}
	if !m.foreign.Swap(true) {
		m.log.Error("dry runs and reads alone are served", "reason", err)
	}
	return false, nil
}

// Adoption is what is changed when a database becomes an instance's own.
type Adoption struct {
	// From and To say whose it is, in words.
	From, To string
	// Runs are those that are active: they end.
	Runs []string
	// Scheduled says that the schedule is enabled: it will not be.
	Scheduled bool
}

// Adopting tells what Adopt will change.
func Adopting(ctx context.Context, db campaign.Querier, name string) (a Adoption, err error) {
	kept, now, err := readIdentities(ctx, db)
	if err != nil {
		return a, err
	}
	now.name = name
	a.From, a.To = kept.String(), now.String()
	err = db.QueryRow(ctx, `SELECT ARRAY(SELECT id::text FROM cleanupd.run WHERE state IN ('QUEUED', 'RUNNING')
		ORDER BY create_time), EXISTS (SELECT FROM cleanupd.schedule WHERE enabled)`).
		Scan(&a.Runs, &a.Scheduled)
	return a, err
}

func (i identity) String() string {
	if i.system == "" {
		return "no instance"
	}
	return fmt.Sprintf("instance %q, system identifier %s, database oid %d", i.name, i.system, i.database)
}

// Adopt makes a database the manager's own: its active runs end CANCELLED, and the schedule is disabled.
func (m *Manager) Adopt(ctx context.Context) error {
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(
			ctx,
			"UPDATE cleanupd.schedule SET enabled = false, next_run_time = NULL, pending = false",
		); err != nil {
			return err
		}
		// This waits for runs that are being requested, and others wait for it.
		if _, err := tx.Exec(ctx, `INSERT INTO cleanupd.instance (name, system_identifier, database_oid)
			SELECT $1, (SELECT system_identifier::text FROM pg_control_system()), oid FROM pg_database
				WHERE datname = current_database()
			ON CONFLICT (only_row) DO UPDATE
				SET name = excluded.name, system_identifier = excluded.system_identifier,
				database_oid = excluded.database_oid, adopt_time = clock_timestamp()`, m.instance); err != nil {
			return err
		}
		a, err := Adopting(ctx, tx, m.instance)
		if err != nil {
			return err
		}
		for _, id := range a.Runs {
			if _, err := m.fence(
				ctx,
				tx,
				id,
				outcome{Cancelled, "the database was adopted by " + a.To, CauseCancelled},
			); err != nil {
				return err
			}
		}
		return nil
	})
}

// fence ends a run here; whoever held it is fenced.
func (m *Manager) fence(ctx context.Context, tx pgx.Tx, id string, o outcome) (*Run, error) {
	var epoch int64
	if err := tx.QueryRow(ctx, "UPDATE cleanupd.run SET "+newEpoch+" WHERE id = $1::text::uuid RETURNING epoch", id).
		Scan(&epoch); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE cleanupd.task SET epoch = $2 WHERE run_id = $1::text::uuid",
		id,
		epoch,
	); err != nil {
		return nil, err
	}
	return m.finish(ctx, tx, id, epoch, o)
}
