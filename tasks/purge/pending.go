package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Pending has the rows that a batch is about to delete or update on another server, and that are not in the ledger
// yet.
//
// The other server may commit even if this one does not: postgres_fdw commits there first. So a batch writes the
// keys to the ledger, and commits them, before it changes anything. The transaction that changes the rows then
// settles them. If it is unknown whether the other server committed such a transaction, the rows that are missing
// there are counted.
type Pending struct {
	Keys   []int64 `json:"keys"`             // one for each row, in order
	Paired []int64 `json:"paired,omitempty"` // the keys of rows that have a paired row
}

// batchTimeout limits a statement of such a batch. Nothing else limits how long it waits for locks on another server.
const batchTimeout = 10 * time.Second

// inOtherServersBatch runs fn in a transaction, which fn may commit. Citus forwards settings to other servers only
// if citus.propagate_set_commands comes before them.
func (t *table) inOtherServersBatch(ctx context.Context, timeout time.Duration, fn func(tx pgx.Tx) error) error {
	const sql = "SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL lock_timeout = '2s'; " +
		"SET LOCAL statement_timeout = %d"
	return t.engine.InTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(sql, timeout.Milliseconds())); err != nil {
			return err
		}
		return fn(tx)
	})
}

// batch deletes or updates the rows of some keys between from and to. failure is the error of a row; then no row
// was changed.
func (r *keySweep) batch(ctx context.Context, keys []int64, from, to int64) (failure, err error) {
	if r.immovable {
		return nil, &OtherServerError{Reason: "its rows may have to leave a foreign partition, which is impossible"}
	}
	p := &Pending{Keys: keys}
	err = r.table.inOtherServersBatch(ctx, batchTimeout, func(tx pgx.Tx) (err error) {
		if p.Paired, err = r.existingPaired(ctx, tx, keys); err != nil {
			return err
		}
		return r.table.engine.Commit(ctx, tx, Delta{Cursor: r.cursor(from, p)})
	})
	if err != nil {
		return nil, err
	}
	changed, first := 0, true
	failure, err = r.table.try(ctx, func() (err error) {
		changed, err = r.settle(ctx, p, to, true, first)
		first = false
		return err
	})
	// the transaction has ended on this server; count rows that are nevertheless missing on the other one
	if failed := cmp.Or(failure, err); sqlstate.Of(failed) != "" {
		if _, unsettled := r.settle(ctx, p, from, false, false); unsettled != nil {
			return nil, &unsettledError{failed, len(keys)}
		}
		return failure, err
	}
	if err == nil && changed < len(keys) {
		var suppressed int64
		suppressed, err = r.countKeys(ctx, keys)
		r.outcome.retain(to+1, Retained{Suppressed: suppressed})
	}
	return nil, err
}

func (r *keySweep) cursor(key int64, p *Pending) Cursor {
	return Cursor{
		Unit:     r.table.sweep.Unit,
		Place:    key,
		Pending:  p,
		Before:   r.outcome.before,
		Retained: r.outcome.below(key),
	}
}

// unsettledError means that some rows may be missing on the other server without being in the ledger.
type unsettledError struct {
	error
	rows int
}

func (e *unsettledError) Unwrap() error { return e.error }

// SettlePending settles the rows that a previous worker of the sweep left pending at the cursor. The last
// transaction of that worker must have ended on this server. If it has not ended on the other server, SettlePending
// waits for its locks.
func (e *Engine) SettlePending(ctx context.Context, s Sweep, from Cursor) error {
	return e.open(ctx, []Sweep{s}, func(t *table) error {
		r := &keySweep{table: t, outcome: &outcome{before: from.Before}}
		r.outcome.retain(from.Place, from.Retained)
		if err := r.findRoot(ctx); err != nil {
			return err
		}
		err := t.engine.Retry(ctx, s.Name, func() error {
			_, err := r.settle(ctx, from.Pending, from.Place, true, false)
			return err
		})
		if sqlstate.Of(err) != "" || errors.Is(err, ErrDetached) {
			_, err = r.settle(ctx, from.Pending, from.Place, false, false)
		}
		return asOtherServerError(err)
	})
}

// settle writes the pending rows that are missing to the ledger, at a key, and returns their number without paired
// rows. If change is set, it first deletes or updates those that still match. first is set if that has not been
// tried before.
func (r *keySweep) settle(ctx context.Context, p *Pending, key int64, change, first bool) (changed int, err error) {
	t, s := r.table, r.table.sweep
	err = t.inOtherServersBatch(ctx, batchTimeout, func(tx pgx.Tx) error {
		n := batchResult{begun: time.Now(), statements: 1}
		var missing []int64
		var err error
		if change {
			change := sqlexpr.Format("%s WHERE r.%[2]s = ANY (%[3]s) AND (%[4]s) RETURNING r.%[2]s::bigint",
				s.command(r.root), s.ByKey, sqlexpr.Arg(p.Keys, "bigint[]"), s.Where)
			if missing, err = change.IDs(ctx, tx); err != nil {
				return err
			}
			if err = s.requireUnchanged(ctx, tx); err != nil {
				return err
			}
		}
		of := p.Keys
		if first {
			of = missing
		}
		if !first || s.Set != nil { // a trigger on the other server may have undone the update of a row
			remaining, err := remainingKeys(s, p.Keys).IDs(ctx, tx)
			if err != nil {
				return err
			}
			missing = without(of, remaining)
		}
		if n.paired, err = r.deletePaired(ctx, tx, p, missing, first); err != nil {
			return err
		}
		changed = len(missing)
		n.changed, n.largest = int64(changed), int64(changed)
		d := s.delta(n)
		d.Cursor = r.cursor(key, nil)
		if err := t.engine.Commit(ctx, tx, d); err != nil {
			return err
		}
		t.engine.Spend(n.changed+n.paired, n.begun)
		return nil
	})
	return changed, err
}

// remainingKeys returns a query for the keys of pending rows that still exist or, if rows are updated, still match.
func remainingKeys(s *Sweep, keys []int64) sqlexpr.Expr {
	matches := sqlexpr.Expr{}
	if s.Set != nil {
		matches = sqlexpr.Format(" AND (%s)", s.Where)
	}
	return sqlexpr.Format("SELECT r.%[1]s::bigint FROM ONLY %[2]s AS r WHERE r.%[1]s = ANY (%[3]s)%[4]s", s.ByKey,
		s.Relation, sqlexpr.Arg(keys, "bigint[]"), matches)
}

func without(keys, others []int64) []int64 {
	slices.Sort(others)
	return slices.DeleteFunc(slices.Clone(keys),
		func(key int64) bool { _, found := slices.BinarySearch(others, key); return found })
}

func (r *keySweep) existingPaired(ctx context.Context, tx pgx.Tx, ids []int64) ([]int64, error) {
	paired := r.table.sweep.Paired
	if paired == nil {
		return nil, nil
	}
	return sqlexpr.Format("SELECT t.%[1]s::bigint FROM %[2]s AS t WHERE t.%[1]s = ANY (%[3]s) AND t.%[1]s <> 0",
		paired.Key, paired.Relation, sqlexpr.Arg(ids, "bigint[]")).IDs(ctx, tx)
}

// deletePaired deletes the rows paired with missing rows, whose ids are given, and returns how many paired rows are
// missing.
func (r *keySweep) deletePaired(ctx context.Context, tx pgx.Tx, p *Pending, ids []int64, first bool) (int64, error) {
	paired := r.table.sweep.Paired
	if paired == nil {
		return 0, nil
	}
	const sql = "DELETE FROM %[1]s AS t WHERE t.%[2]s = ANY ($1::bigint[]) AND t.%[2]s <> 0"
	tag, err := tx.Exec(ctx, fmt.Sprintf(sql, paired.Relation, paired.Key), ids)
	if err != nil || first {
		return tag.RowsAffected(), err
	}
	remaining, err := r.existingPaired(ctx, tx, p.Paired)
	return int64(len(without(p.Paired, remaining))), err
}
