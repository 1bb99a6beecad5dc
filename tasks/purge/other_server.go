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
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Rows on another server have no usable TIDs. A sweep finds the keys of the obsolete rows in one window of keys after
// another, and deletes or updates these rows. Every statement goes through this server, which locates them.

// The width of windows of keys, and the most rows of a batch. The keys of a batch are written to the ledger.
const (
	firstKeys    = 10_000
	minKeys      = 1_000
	maxKeys      = math.MaxInt64 / 4
	maxBatchKeys = 5_000
)

// findKeysTimeout limits the search for the keys of one batch. A search that takes longer is repeated in a smaller
// window.
const findKeysTimeout = 30 * time.Second

// OtherServerError means that a sweep ended early, because a statement failed on the server that has the rows, or
// because the rows have no key to find them. Obsolete rows remain.
type OtherServerError struct {
	Reason string
	// Uncounted is how many rows may have been deleted or updated without being in the ledger.
	Uncounted int
}

func (e *OtherServerError) Error() string {
	if e.Uncounted > 0 {
		return fmt.Sprintf("%s; could not tell whether the last %d rows were changed; not counted", e.Reason,
			e.Uncounted)
	}
	return e.Reason
}

// asOtherServerError wraps err in an OtherServerError, unless this server or the connection to it is the cause. The
// connection survives an error of another server.
func asOtherServerError(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.SeverityUnlocalized != "ERROR" || strings.HasPrefix(pgErr.Code, "53") ||
		strings.HasPrefix(pgErr.Code, "58") || pgErr.Code == pgerrcode.ReadOnlySQLTransaction {
		return err
	}
	remote := &OtherServerError{Reason: Message(err)}
	if unsettled := (*unsettledError)(nil); errors.As(err, &unsettled) {
		remote.Uncounted = unsettled.rows
	}
	return remote
}

// keySweep sweeps a table whose rows are on another server, or whose statements read rows there.
type keySweep struct {
	table     *table
	outcome   *outcome
	root      string // the quoted partitioned table, if updated rows may have to move to another partition
	immovable bool   // rows may have to move to another partition, but cannot
}

func (r *keySweep) run(ctx context.Context, from Cursor) error {
	t, s := r.table, r.table.sweep
	t.engine.Recorder.Scanning(Scan{KeyScan, s.ByKey})
	if err := s.OtherServerError(); err != nil {
		return err
	}
	if err := r.findRoot(ctx); err != nil {
		return err
	}
	next, last, err := r.keyRange(ctx)
	if err != nil {
		return err
	}
	if from.Unit == s.Unit {
		next = max(next, from.Place)
		r.outcome.retain(next, from.Retained)
	}
	var bisection pace.Bisection
	maxRows, target := min(s.maxRows(t.engine.MaxRows), maxBatchKeys), cmp.Or(t.engine.Target, DefaultTarget)
	limit, width := pace.FirstRows(maxRows), uint64(firstKeys)
	for next <= last && !r.outcome.ended() {
		if err := t.engine.Wait(ctx); err != nil {
			return err
		}
		begun, end := time.Now(), last
		if uint64(last-next) > width {
			end = next + int64(width)
		}
		pickLimit := bisection.Limit(limit)
		keys, err := r.findKeys(ctx, next, end, pickLimit)
		if len(keys) == pickLimit {
			keys, end = wholeKeys(keys)
		}
		var failure error
		if err == nil && len(keys) > 0 {
			failure, err = r.batch(ctx, keys, next, end)
		}
		slow := sqlstate.Is(err, pgerrcode.QueryCanceled, pgerrcode.LockNotAvailable)
		switch took := time.Since(begun); {
		case slow && keys == nil && width > minKeys:
			width = max(width/8, minKeys)
			continue
		case slow && len(keys) > 1:
			limit = max(min(limit, len(keys))/10, 1)
			continue
		case slow && len(keys) == 1: // these are all rows of one key
			r.outcome.retain(end+1, Retained{Locked: 1})
		case failure != nil && len(keys) > 1:
			bisection.Failed(len(keys))
			continue
		case failure != nil:
			if err := r.fail(ctx, keys, end+1, failure); err != nil {
				return err
			}
			bisection.Skipped()
		case err != nil:
			return err
		case took > 4*target:
			width, limit = max(width/2, minKeys), max(limit/2, 1)
		case took < target:
			width, limit = min(2*width, maxKeys), min(2*limit, maxRows)
		}
		if failure == nil {
			bisection.Passed(len(keys), limit)
		}
		if end == last { // last may be the greatest integer
			break
		}
		next = end + 1
	}
	return nil
}

// fail counts the rows of a key as failed, below a position.
func (r *keySweep) fail(ctx context.Context, keys []int64, below int64, failure error) error {
	rows, err := r.countKeys(ctx, keys)
	if err != nil {
		return err
	}
	if r.outcome.fail(r.table.sweep.asFailed(rows, failure), below, failure) {
		key := strconv.FormatInt(keys[0], 10)
		r.table.engine.Recorder.Warn(RowFailed(r.table.sweep.Name, pgtype.TID{}, &key, failure))
	}
	return nil
}

// findRoot finds out whether updated rows may have to move to another partition, and whether they can.
func (r *keySweep) findRoot(ctx context.Context) error {
	root, err := r.table.moveRoot(ctx)
	if r.root = root.relation; err != nil || r.root == "" {
		return err
	}
	const sql = "SELECT relkind = 'f' FROM pg_class WHERE oid = $1::text::regclass"
	return r.table.read(ctx, []any{&r.immovable}, sql, r.table.sweep.Relation)
}

// wholeKeys leaves out the last key, which may have more rows, and returns the end of the window of the other keys.
// If all keys are the same, it returns all of them.
func wholeKeys(keys []int64) (whole []int64, end int64) {
	last := keys[len(keys)-1]
	if i, _ := slices.BinarySearch(keys, last); i > 0 {
		return keys[:i], last - 1
	}
	return keys, last
}

// keyRange returns the least and the greatest key. In an empty table last is below first.
func (r *keySweep) keyRange(ctx context.Context) (first, last int64, err error) {
	err = r.table.query(ctx,
		sqlexpr.Format(
			"SELECT COALESCE(min(r.%[1]s), 0)::bigint, COALESCE(max(r.%[1]s), -1)::bigint FROM ONLY %[2]s AS r",
			r.table.sweep.ByKey, r.table.sweep.Relation),
		&first, &last)
	return first, last, err
}

// findKeys returns the keys of obsolete rows between two keys, in order and up to a limit. A key occurs once for
// each of its rows.
func (r *keySweep) findKeys(ctx context.Context, from, to int64, limit int) (keys []int64, err error) {
	s := r.table.sweep
	query := sqlexpr.Format(
		"SELECT r.%[1]s::bigint FROM ONLY %[2]s AS r WHERE r.%[1]s >= %[3]s AND r.%[1]s <= %[4]s AND (%[5]s) "+
			"ORDER BY r.%[1]s LIMIT %[6]s",
		s.ByKey, s.Relation, sqlexpr.Arg(from, ""), sqlexpr.Arg(to, ""), s.Where, sqlexpr.Arg(limit, ""),
	)
	err = r.table.engine.Retry(ctx, s.Name, func() error {
		return r.table.inOtherServersBatch(ctx, findKeysTimeout, func(tx pgx.Tx) error {
			keys, err = query.IDs(ctx, tx)
			return err
		})
	})
	return keys, err
}

func (r *keySweep) countKeys(ctx context.Context, keys []int64) (rows int64, err error) {
	s := r.table.sweep
	err = r.table.query(ctx,
		sqlexpr.Format("SELECT count(*) FROM ONLY %s AS r WHERE r.%s = ANY (%s) AND (%s)", s.Relation, s.ByKey,
			sqlexpr.Arg(keys, "bigint[]"), s.Where),
		&rows)
	return rows, err
}
