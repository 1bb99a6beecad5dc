package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// ErrNotStandby means that the server is not a hot standby of the database.
var ErrNotStandby = errors.New("it is not a standby of --database-url")

type identity struct {
	inRecovery   bool
	system, name string
	oid          int64
}

func readIdentity(ctx context.Context, pool *pgxpool.Pool) (i identity, err error) {
	err = pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), (SELECT system_identifier::text
		FROM pg_control_system()), datname, oid::bigint FROM pg_database WHERE datname = current_database()`).
		Scan(&i.inRecovery, &i.system, &i.name, &i.oid)
	return i, err
}

// CheckStandby fails with ErrNotStandby unless standby connects to the same database as primary, on a hot standby
// of its server. It also fails if one of them does not answer.
func CheckStandby(ctx context.Context, primary, standby *pgxpool.Pool) error {
	here, err := readIdentity(ctx, primary)
	if err != nil {
		return err
	}
	there, err := readIdentity(ctx, standby)
	switch {
	case errors.Is(err, connection.ErrPrimary) || (err == nil && !there.inRecovery):
		return fmt.Errorf("%w: it is not in recovery", ErrNotStandby)
	case err != nil:
		return err
	case there.system != here.system:
		return fmt.Errorf("%w: its system identifier is %s, and that of --database-url %s", ErrNotStandby, there.system,
			here.system)
	case there.oid != here.oid:
		return fmt.Errorf("%w: its database is %s, and that of --database-url %s", ErrNotStandby, there.name, here.name)
	}
	return nil
}

func readsStandby(r *Run) bool { return r.Database.Pool != r.Database.Primary }

const (
	// pollEvery is how often a standby is asked how much WAL it has replayed.
	pollEvery = 200 * time.Millisecond
	// defaultMaxWait is the default of Standby.MaxWait.
	defaultMaxWait = 10 * time.Minute
)

// awaitStandby waits until the standby has replayed everything that was written before the dry run.
func (x *counting) awaitStandby(ctx context.Context) error {
	if !readsStandby(x.run) {
		return nil
	}
	primary, standby := x.run.Database.Primary, x.run.Database.Pool
	if err := CheckStandby(ctx, primary, standby); err != nil {
		return err
	}
	var written string
	if err := primary.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&written); err != nil {
		return err
	}
	maxWait := cmp.Or(x.run.Config.Standby.MaxWait, defaultMaxWait)
	deadline := time.Now().Add(maxWait)
	for logged := false; ; logged = true {
		var behind int64
		if err := standby.QueryRow(ctx, "SELECT ($1::text::pg_lsn - pg_last_wal_replay_lsn())::bigint", written).
			Scan(&behind); err != nil {
			return err
		}
		switch {
		case behind <= 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf(
				"the standby (--preview-database-url) has not replayed what was written %s ago: it is %d bytes of "+
					"WAL behind; see why it lags, or serve without it",
				maxWait, behind,
			)
		case !logged:
			x.run.Database.Log(ctx,
				message.Infof("the dry run waits for the standby that it reads, which is %d bytes of WAL behind",
					behind))
		}
		if err := x.run.Journal.Proceed(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// standbyError turns an error of reading the standby into one that does not count as the loss of the database.
func (x *counting) standbyError(ctx context.Context, err error) error {
	switch {
	case !readsStandby(x.run) || err == nil || endsAttempt(err) || ctx.Err() != nil:
		return err
	case sqlstate.Is(err, pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected):
		return fmt.Errorf(
			"reading the standby (--preview-database-url) conflicts with its recovery; turn hot_standby_feedback on "+
				"there, or raise max_standby_streaming_delay: %s",
			sqlstate.Text(err),
		) //nolint:errorlint // its SQLSTATE calls for other advice
	case !sqlstate.Lost(err):
		return err
	}
	ping, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if x.run.Database.Pool.Ping(ping) == nil { // the standby, or the primary, was not reachable for a short time
		return err
	}
	return fmt.Errorf(
		"the standby (--preview-database-url) cannot be read: %s", sqlstate.Text(err),
	) //nolint:errorlint // see above
}
