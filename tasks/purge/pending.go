package purge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Pending is rows that a batch is about to delete or update on another server, and that are not in the account yet.
//
// Another server may commit although this one does not: postgres_fdw commits there first. So a batch writes the keys to
// the account and commits that before it begins; the transaction that changes the rows then settles them. If it is not
// known whether such a transaction was committed elsewhere, the rows that are gone are counted.
type Pending struct {
	Keys   []int64 `json:"keys"`            // one for each row, in order
	Paired []int64 `json:"twins,omitempty"` // those whose rows have a paired row
}

// batchTimeout is how long a statement of such a batch may take. Locks on another server have no other limit.
const batchTimeout = 10 * time.Second

// batchByKey deletes or updates the rows of some keys, which are from one key to another. It returns apart whether a
// row refused that; then none was changed.
func (sw *sweep) batchByKey(ctx context.Context, keys []int64, from, to int64) (refusal, err error) {
	if sw.stuck {
		return nil, &RemoteError{
			Reason: "its rows may have to move to another partition, which those of a foreign table can not",
		}
	}
	p := &Pending{Keys: keys}
	err = sw.inBatch(ctx, batchTimeout, func(tx pgx.Tx) (err error) {
		if p.Paired, err = sw.pairedOf(ctx, tx, keys); err != nil {
			return err
		}
		return sw.Commit(ctx, tx, Delta{Cursor: sw.atKey(from, p)})
	})
	if err != nil {
		return nil, err
	}
	changed, sure := 0, true
	refusal, err = sw.try(ctx, func() (err error) {
		changed, err = sw.settle(ctx, p, to, true, sure)
		sure = false
		return err
	})
	// it has ended here; what went elsewhere all the same is counted
	if failed := cmp.Or(refusal, err); sqlstate.Of(failed) != "" {
		if _, unsettled := sw.settle(ctx, p, from, false, false); unsettled != nil {
			return nil, &unsettledError{failed, len(keys)}
		}
		return refusal, err
	}
	if err == nil && changed < len(keys) {
		var kept int64
		kept, err = sw.countKeys(ctx, keys)
		sw.leave(to+1, Retained{Suppressed: kept})
	}
	return nil, err
}

// atKey is the cursor at a key.
func (sw *sweep) atKey(key int64, p *Pending) Cursor {
	return Cursor{Unit: sw.Unit, Place: key, Pending: p, Before: sw.before, Retained: sw.leftBelow(key)}
}

// unsettledError is an error after which some rows may be gone without being in the account.
type unsettledError struct {
	error
	rows int
}

func (e *unsettledError) Unwrap() error { return e.error }

// SettlePending settles what a previous worker of the sweep left pending at the cursor. Its last transaction must have ended
// here; where it has not ended elsewhere, its locks are waited for.
func (e *Engine) SettlePending(ctx context.Context, s Sweep, from Cursor) error {
	return e.open(ctx, []Sweep{s}, func(sw *sweep) error {
		sw.before = from.Before
		sw.leave(from.Place, from.Retained)
		if err := sw.findRoot(ctx); err != nil {
			return err
		}
		err := sw.Retry(ctx, sw.Name, func() error {
			_, err := sw.settle(ctx, from.Pending, from.Place, true, false)
			return err
		})
		if sqlstate.Of(err) != "" {
			_, err = sw.settle(ctx, from.Pending, from.Place, false, false)
		}
		return refused(err)
	})
}

// settle deletes or updates the pending rows that still match, if it is to change any, and writes the account of all
// that are gone. It returns how many these are, except for paired ones. sure says that nobody has tried to change them
// before.
func (sw *sweep) settle(ctx context.Context, p *Pending, place int64, change, sure bool) (changed int, err error) {
	err = sw.inBatch(ctx, batchTimeout, func(tx pgx.Tx) error {
		begun := time.Now()
		var gone []int64
		var err error
		if change {
			sql := fmt.Sprintf(
				"%s WHERE r.%[2]s = ANY ($%[3]d::bigint[]) AND (%[4]s) RETURNING r.%[2]s::bigint",
				sw.verb(),
				sw.ByKey,
				len(sw.Args)+len(sw.SetArgs)+1,
				sw.Where,
			)
			if gone, err = list(ctx, tx, sql, slices.Concat(sw.Args, sw.SetArgs, []any{p.Keys})...); err != nil {
				return err
			}
		}
		if !sure {
			stay, err := list(ctx, tx, sw.remaining(), sw.remainingArgs(p.Keys)...)
			if err != nil {
				return err
			}
			gone = without(p.Keys, stay)
		}
		paired, err := sw.deletePaired(ctx, tx, p, gone, sure)
		if err != nil {
			return err
		}
		changed = len(gone)
		d := sw.delta(batchResult{gone: int64(len(gone)), paired: paired, statements: 1, largest: int64(len(gone))})
		d.Cursor, d.Begun = sw.atKey(place, nil), begun
		if err := sw.Commit(ctx, tx, d); err != nil {
			return err
		}
		sw.Spend(int64(len(gone)) + paired)
		return nil
	})
	return changed, err
}

// remaining is the query for the keys of pending rows that are not gone: they are there or, if they are updated, still
// match.
func (sw *sweep) remaining() string {
	where := ""
	if sw.Set != nil {
		where = " AND (" + sw.Where + ")"
	}
	return fmt.Sprintf(
		"SELECT r.%[1]s::bigint FROM ONLY %[2]s AS r WHERE r.%[1]s = ANY ($%[3]d::bigint[])%[4]s",
		sw.ByKey,
		sw.Relation,
		len(sw.remainingArgs(nil)),
		where,
	)
}

func (sw *sweep) remainingArgs(keys []int64) []any {
	if sw.Set == nil {
		return []any{keys}
	}
	return append(slices.Clone(sw.Args), keys)
}

// without are the keys that are not among others.
func without(keys, others []int64) []int64 {
	slices.Sort(others)
	return slices.DeleteFunc(
		slices.Clone(keys),
		func(key int64) bool { _, found := slices.BinarySearch(others, key); return found },
	)
}

// pairedOf are those of the ids that rows of the paired table have.
func (sw *sweep) pairedOf(ctx context.Context, tx pgx.Tx, ids []int64) ([]int64, error) {
	if sw.Paired == nil {
		return nil, nil
	}
	return list(
		ctx,
		tx,
		fmt.Sprintf(
			"SELECT t.%[1]s::bigint FROM %[2]s AS t WHERE t.%[1]s = ANY ($1::bigint[]) AND t.%[1]s <> 0",
			sw.Paired.Key,
			sw.Paired.Relation,
		),
		ids,
	)
}

// deletePaired deletes the paired rows of those that are gone, and returns how many are gone with them.
func (sw *sweep) deletePaired(ctx context.Context, tx pgx.Tx, p *Pending, gone []int64, sure bool) (int64, error) {
	if sw.Paired == nil {
		return 0, nil
	}
	tag, err := tx.Exec(
		ctx,
		fmt.Sprintf(
			"DELETE FROM %[1]s AS t WHERE t.%[2]s = ANY ($1::bigint[]) AND t.%[2]s <> 0",
			sw.Paired.Relation,
			sw.Paired.Key,
		),
		gone,
	)
	if err != nil || sure {
		return tag.RowsAffected(), err
	}
	stay, err := sw.pairedOf(ctx, tx, p.Paired)
	return int64(len(without(p.Paired, stay))), err
}

// countKeys counts the rows of some keys that still match.
func (sw *sweep) countKeys(ctx context.Context, keys []int64) (rows int64, err error) {
	err = sw.read(
		ctx,
		[]any{&rows},
		fmt.Sprintf(
			"SELECT count(*) FROM ONLY %s AS r WHERE r.%s = ANY ($%d::bigint[]) AND (%s)",
			sw.Relation,
			sw.ByKey,
			len(sw.Args)+1,
			sw.Where,
		),
		append(slices.Clone(sw.Args), keys)...)
	return rows, err
}
