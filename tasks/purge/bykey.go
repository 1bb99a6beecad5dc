package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Where TIDs do not serve, since rows are on another server, a sweep goes by an integer key: it finds the keys of
// obsolete rows in one window of keys after another, and deletes or updates these rows. Every statement goes through
// this server, which knows where the rows are.

// The windows of keys, and the most rows of a batch, whose keys are written to the account.
const (
	firstKeys = 10_000
	leastKeys = 1_000
	mostKeys  = math.MaxInt64 / 4
	mostByKey = 5_000
)

// findByKey is how long finding the keys of one batch may take; a longer search is repeated in a smaller window.
const findByKey = 30 * time.Second

// RemoteError says that a sweep ended early, since the server that has the rows refused a statement, or there is no
// key to go by. Obsolete rows are left.
type RemoteError struct {
	Reason string
	// Uncounted is how many rows may have been deleted or updated without being in the account.
	Uncounted int
}

func (e *RemoteError) Error() string {
	if e.Uncounted > 0 {
		return fmt.Sprintf(
			"%s; whether the last %d rows were changed is not known, they are not counted",
			e.Reason,
			e.Uncounted,
		)
	}
	return e.Reason
}

// RemoteError is why the sweep is refused whatever rows it has; nil: it is not.
func (s *Sweep) RemoteError() error {
	switch {
	case s.Elsewhere && s.ByKey == "":
		return &RemoteError{Reason: "it has no integer key to go by"}
	case s.Elsewhere && s.Companion != nil:
		return &RemoteError{Reason: "another statement has to go with each of its rows"}
	}
	return nil
}

// refused makes a RefusedError of what a statement failed with, unless the cause is this server or the connection to
// it: an error of another server comes over a connection that goes on.
func refused(err error) error {
	var (
		pgErr     *pgconn.PgError
		unsettled *unsettledError
		rows      int
	)
	switch {
	case !errors.As(err, &pgErr) || pgErr.SeverityUnlocalized != "ERROR",
		strings.HasPrefix(
			pgErr.Code,
			"53",
		), strings.HasPrefix(pgErr.Code, "58"), pgErr.Code == pgerrcode.ReadOnlySQLTransaction:
		return err
	case errors.As(err, &unsettled):
		rows = unsettled.rows
	}
	return &RemoteError{Message(err), rows}
}

// byKey deletes or updates the rows, from the cursor on.
func (sw *sweep) byKey(ctx context.Context, from Cursor) error {
	sw.Recorder.ScanMethod("key " + sw.ByKey)
	if err := sw.RemoteError(); err != nil {
		return err
	}
	if err := sw.findRoot(ctx); err != nil {
		return err
	}
	next, last, err := sw.keys(ctx)
	if err != nil {
		return err
	}
	if from.Unit == sw.Unit {
		next = max(next, from.Place)
		sw.leave(next, from.Retained)
	}
	var bisect pace.Bisection
	mostRows, target := min(sw.mostRows, mostByKey), cmp.Or(sw.Target, DefaultTarget)
	limit, width := pace.FirstRows(mostRows), uint64(firstKeys)
	for next <= last {
		if err := sw.Wait(ctx); err != nil {
			return err
		}
		begun, end := time.Now(), last
		if uint64(last-next) > width {
			end = next + int64(width)
		}
		most := bisect.Limit(limit)
		keys, err := sw.findKeys(ctx, next, end, most)
		if len(keys) == most {
			keys, end = wholeKeys(keys)
		}
		var refusal error
		if err == nil && len(keys) > 0 {
			refusal, err = sw.batchByKey(ctx, keys, next, end)
		}
		slow := sqlstate.Is(err, pgerrcode.QueryCanceled, pgerrcode.LockNotAvailable)
		switch took := time.Since(begun); {
		case slow && keys == nil && width > leastKeys:
			width = max(width/8, leastKeys)
			continue
		case slow && len(keys) > 1:
			limit = max(min(limit, len(keys))/10, 1)
			continue
		case slow && len(keys) == 1: // all rows of one key
			sw.leave(end+1, Retained{Locked: 1})
		case refusal != nil && len(keys) > 1:
			bisect.Failed(len(keys))
			continue
		case refusal != nil:
			rows, err := sw.countKeys(ctx, keys)
			if err != nil {
				return err
			}
			bisect.Skipped()
			key := strconv.FormatInt(keys[0], 10)
			sw.refuseRows(DescribeRowError(sw.Name, pgtype.TID{}, &key, refusal), rows, end+1, refusal)
		case err != nil:
			return err
		case took > 4*target:
			width, limit = max(width/2, leastKeys), max(limit/2, 1)
		case took < target:
			width, limit = min(2*width, mostKeys), min(2*limit, mostRows)
		}
		if refusal == nil {
			bisect.Passed(len(keys), limit)
		}
		if sw.over() {
			return nil
		}
		if end == last { // there may be no number after it
			break
		}
		next = end + 1
	}
	return nil
}

// findRoot finds out whether updated rows may have to move to another partition, and whether they can.
func (sw *sweep) findRoot(ctx context.Context) error {
	if sw.Set == nil || !sw.Partition {
		return nil
	}
	if err := sw.movesTo(ctx); err != nil || sw.root == "" {
		return err
	}
	return sw.read(
		ctx,
		[]any{&sw.stuck},
		"SELECT relkind = 'f' FROM pg_class WHERE oid = $1::text::regclass",
		sw.Relation,
	)
}

// wholeKeys are the keys but the last one, of which there may be more rows, and the end of the window without these; or
// all, if there is one key alone.
func wholeKeys(keys []int64) (whole []int64, end int64) {
	last := keys[len(keys)-1]
	if i, _ := slices.BinarySearch(keys, last); i > 0 {
		return keys[:i], last - 1
	}
	return keys, last
}

// keys are the first and the last key of the table; the last is below the first if there is none.
func (sw *sweep) keys(ctx context.Context) (first, last int64, err error) {
	err = sw.read(
		ctx,
		[]any{&first, &last},
		fmt.Sprintf(
			"SELECT COALESCE(min(r.%[1]s), 0)::bigint, COALESCE(max(r.%[1]s), -1)::bigint FROM ONLY %[2]s AS r",
			sw.ByKey,
			sw.Relation,
		),
	)
	return first, last, err
}

// findKeys returns the keys of obsolete rows from one key to another, no more than limit, in order: one for each row.
func (sw *sweep) findKeys(ctx context.Context, from, to int64, limit int) (keys []int64, err error) {
	n := len(sw.Args)
	sql := fmt.Sprintf(
		"SELECT r.%[1]s::bigint FROM ONLY %[2]s AS r WHERE r.%[1]s >= $%[3]d AND r.%[1]s <= $%[4]d AND (%[5]s) ORDER "+
			"BY r.%[1]s LIMIT $%[6]d",
		sw.ByKey,
		sw.Relation,
		n+1,
		n+2,
		sw.Where,
		n+3,
	)
	err = sw.Retry(ctx, sw.Name, func() error {
		return sw.inBatch(ctx, findByKey, func(tx pgx.Tx) error {
			keys, err = list(ctx, tx, sql, slices.Concat(sw.Args, []any{from, to, limit})...)
			return err
		})
	})
	return keys, err
}

// list returns the numbers that a query has.
func list(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]int64, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// inBatch runs fn, which may commit, in the transaction of a batch. Citus passes on what is set after its own setting;
// without it that one has no effect.
func (sw *sweep) inBatch(ctx context.Context, timeout time.Duration, fn func(tx pgx.Tx) error) error {
	tx, err := sw.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(
		ctx,
		fmt.Sprintf(
			"SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL lock_timeout = '2s'; SET LOCAL "+
				"statement_timeout = %d",
			timeout.Milliseconds(),
		),
	); err != nil {
		return err
	}
	return fn(tx)
}

// CountElsewhere counts the rows of a sweep that is elsewhere, changing and locking nothing, and apart from these their
// paired rows.
func (e *Engine) CountElsewhere(ctx context.Context, s Sweep) (t Tally, err error) {
	t.Windows = 1
	err = e.open(ctx, []Sweep{s}, func(sw *sweep) (err error) {
		t.Rows, t.Paired, err = sw.countByKey(ctx)
		return err
	})
	return t, err
}

// countByKey counts the rows and their paired rows, as Count does.
func (sw *sweep) countByKey(ctx context.Context) (rows, paired int64, err error) {
	err = sw.Retry(ctx, sw.Name, func() error {
		return sw.inBatch(ctx, findTimeout, func(tx pgx.Tx) error {
			if err := tx.QueryRow(
				ctx,
				fmt.Sprintf("SELECT count(*) FROM ONLY %s AS r WHERE %s", sw.Relation, sw.Where),
				sw.Args...,
			).
				Scan(&rows); err != nil ||
				sw.Paired == nil {
				return err
			}
			of := func(s Sweep) string {
				return fmt.Sprintf(
					"t.%s IN (SELECT r.%s FROM ONLY %s AS r WHERE %s)",
					sw.Paired.Key,
					s.Paired.ID,
					s.Relation,
					s.Where,
				)
			}
			sql := fmt.Sprintf(
				"SELECT count(*) FROM %s AS t WHERE t.%s <> 0 AND %s",
				sw.Paired.Relation,
				sw.Paired.Key,
				of(sw.Sweep),
			)
			for _, b := range sw.Paired.Before {
				sql += fmt.Sprintf(" AND (%s) IS NOT TRUE", of(b))
			}
			return tx.QueryRow(ctx, sql, sw.Args...).Scan(&paired)
		})
	})
	return rows, paired, err
}
