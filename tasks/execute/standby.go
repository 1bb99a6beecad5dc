package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Standby is a hot standby of the database's server, which dry runs read in its place.
type Standby struct {
	// Pool is that of the same database there; nil: there is none.
	Pool *pgxpool.Pool
	// Patience is how long a dry run waits until the standby has replayed what was written when the run began; 0:
	// DefaultPatience.
	Patience time.Duration
}

// DefaultPatience is the default of Standby.Patience.
const DefaultPatience = 10 * time.Minute

// ErrOtherServer says that what should be a standby is none, or not one of this database.
var ErrOtherServer = errors.New("it is no standby of --database-url")

// copyOf is whether a server is in recovery, and which one and which database it is.
type copyOf struct {
	inRecovery   bool
	system, name string
	oid          int64
}

func readCopy(ctx context.Context, pool *pgxpool.Pool) (c copyOf, err error) {
	err = pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), (SELECT system_identifier::text
		FROM pg_control_system()), datname, oid::bigint FROM pg_database WHERE datname = current_database()`).
		Scan(&c.inRecovery, &c.system, &c.name, &c.oid)
	return c, err
}

// CheckStandby fails with ErrOtherServer unless one database is that of a hot standby, and the other the same on its
// primary. It also fails when one of them does not answer.
func CheckStandby(ctx context.Context, primary, standby *pgxpool.Pool) error {
	here, err := readCopy(ctx, primary)
	if err != nil {
		return err
	}
	there, err := readCopy(ctx, standby)
	switch {
	case errors.Is(err, connection.ErrPrimary) || (err == nil && !there.inRecovery):
		return fmt.Errorf("%w: it is not in recovery", ErrOtherServer)
	case err != nil:
		return err
	case there.system != here.system:
		return fmt.Errorf(
			"%w: its system identifier is %s, and that of --database-url %s",
			ErrOtherServer,
			there.system,
			here.system,
		)
	case there.oid != here.oid:
		return fmt.Errorf(
			"%w: its database is %s, and that of --database-url %s",
			ErrOtherServer,
			there.name,
			here.name,
		)
	}
	return nil
}

// readsStandby reports whether the tables are read from a standby.
func (d *database) readsStandby() bool { return d.Pool != d.primary }

// lookEvery is how often a standby is asked how far it is.
const lookEvery = 200 * time.Millisecond

// awaitStandby waits until the standby has replayed all that was written before the reference time, and since.
func (d *database) awaitStandby(ctx context.Context) error {
	if !d.readsStandby() {
		return nil
	}
	if err := CheckStandby(ctx, d.primary, d.Pool); err != nil {
		return err
	}
	var written string
	if err := d.primary.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&written); err != nil {
		return err
	}
	patience := cmp.Or(d.Standby.Patience, DefaultPatience)
	end := time.Now().Add(patience)
	for told := false; ; told = true {
		var behind int64
		if err := d.Pool.QueryRow(ctx, "SELECT ($1::text::pg_lsn - pg_last_wal_replay_lsn())::bigint", written).
			Scan(&behind); err != nil {
			return err
		}
		switch {
		case behind <= 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf(
				"the standby (--preview-database-url) has not replayed what was written %s ago: it is %d bytes of "+
					"WAL behind; see why it lags, or serve without it",
				patience,
				behind,
			)
		case !told:
			d.log(
				ctx,
				severity.Info,
				fmt.Sprintf("the dry run waits for the standby that it reads, which is %d bytes of WAL behind", behind),
			)
		}
		if err := d.journal.Proceed(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ofStandby is an error as it is, unless the standby is its cause: one that is away must not count as the loss of the
// database.
func (d *database) ofStandby(ctx context.Context, err error) error {
	switch {
	case !d.readsStandby() || err == nil || endsRun(err) || ctx.Err() != nil:
		return err
	case sqlstate.Is(err, pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected):
		return fmt.Errorf(
			"reading the standby (--preview-database-url) conflicts with its recovery; turn hot_standby_feedback on "+
				"there, or raise max_standby_streaming_delay: %s",
			err.Error(),
		) //nolint:errorlint // its advice is another
	case !sqlstate.Lost(err):
		return err
	}
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if d.Pool.Ping(ask) == nil { // it, or the primary, was away for a moment
		return err
	}
	return fmt.Errorf(
		"the standby (--preview-database-url) can not be read: %s",
		err.Error(),
	) //nolint:errorlint // see above
}
