package userdata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// erasure is an erasure in progress.
type erasure struct {
	*Database
	id string
	// of the record; holds the advisory locks of the replica that works on it, and does the work: it ends when they are
	// lost
	conn  *pgxpool.Conn
	epoch int64 // of the replica that works on it, in the Forms database

	isSweep bool  // of documents, not of items
	purge   *rule // that the items must still be due by; nil: none
	// told is called after each transaction about items. If it fails, that is why the others stay. nil: it is never
	// called.
	told func(ctx context.Context) error
	stop *stopError // why no more process instances are begun; nil: they are
}

// stopError is why an erasure is to stop.
type stopError struct{ error }

// atOnce is how many process instances, or orphan tasks, are erased in one transaction: where an index is missing, each
// transaction reads the whole table.
const atOnce = 100

// lockTimeout is how long a statement waits for what the Forms server has locked.
const lockTimeout = 5 * time.Second

// passing are the SQLSTATEs of transient errors of the record.
var passing = []string{pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.LockNotAvailable}

// transact runs fn in a transaction of the record, and again after transient errors.
func (e *erasure) transact(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return retry(ctx, maxTries, func(err error) bool { return sqlstate.Is(err, passing...) }, func() error {
		return pgx.BeginTxFunc(ctx, e.conn, pgx.TxOptions{BeginQuery: fmt.Sprintf(
			"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = '10min'",
			lockTimeout.Milliseconds(),
		)}, fn)
	})
}

// run does what an erasure has left to do. It fails only if the database is lost: the erasure must then be resumed.
func (e *erasure) run(ctx context.Context) error {
	if e.isSweep {
		failed, err := e.sweep(ctx)
		if err != nil {
			return err
		}
		return e.finish(ctx, failed)
	}
	erase, together := e.instances, atOnce
	if e.Manager != nil {
		erase, together = e.instanceByServer, 1
	}
	if e.stop == nil {
		if err := e.items(ctx, anInstance, together, erase); err != nil && !errors.As(err, &e.stop) {
			return err
		}
	}
	if e.stop != nil {
		if err := e.dismiss(ctx); err != nil {
			return err
		}
	}
	if err := e.items(ctx, aTask, atOnce, e.orphans); err != nil {
		return err
	}
	if err := e.documents(ctx); err != nil {
		return err
	}
	return e.finish(ctx, false)
}

// items erases the items of a kind that are not settled yet, some of them together.
func (e *erasure) items(
	ctx context.Context,
	kind string,
	together int,
	erase func(ctx context.Context, ids []int64) error,
) error {
	ids, err := collect(
		ctx,
		e.Record,
		pgx.RowTo[int64],
		"SELECT item_id FROM cleanupd.erasure_item WHERE erasure_id = $1::text::uuid AND kind = $2 AND state IN "+
			"('PENDING', 'PURGING') ORDER BY item_id",
		e.id,
		kind,
	)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(ids, together) {
		if err := e.orFail(ctx, kind, chunk, erase); err != nil {
			if errors.As(err, new(*heldError)) && e.purge != nil {
				err = &stopError{err}
			}
			return err
		}
		if e.told == nil {
			continue
		}
		if err := e.told(ctx); err != nil {
			return &stopError{err}
		}
	}
	return nil
}

// errTaken says that another replica works on the erasure. It guards what it deletes and reports: the connection that
// does the work holds the erasure's lock.
var errTaken = errors.New("another replica is at work on the same")

// endsWork reports whether a problem is not that of an item but ends the work: a lost database, another replica, or a
// hold of everything.
func (e *erasure) endsWork(ctx context.Context, problem error) bool {
	return ctx.Err() != nil || e.Forms.lost(problem) || errors.Is(problem, errTaken) ||
		errors.As(problem, new(*heldError))
}

// orFail erases items together or, if one of them cannot be erased, in halves, so that the others are, and records
// which failed. It fails only by what ends the work.
func (e *erasure) orFail(
	ctx context.Context,
	kind string,
	ids []int64,
	erase func(ctx context.Context, ids []int64) error,
) error {
	problem := erase(ctx, ids)
	if problem == nil || e.endsWork(ctx, problem) {
		return problem
	}
	if half := len(ids) / 2; half > 0 {
		if err := e.orFail(ctx, kind, ids[:half], erase); err != nil {
			return err
		}
		return e.orFail(ctx, kind, ids[half:], erase)
	}
	return e.transact(ctx, func(tx pgx.Tx) error {
		if err := e.mark(ctx, tx, "FAILED", kind, ids...); err != nil {
			return err
		}
		return e.append(ctx, tx, failed(kind, ids[0], problem))
	})
}

// mark sets the state of items that are not settled yet; errTaken: one of them is.
func (e *erasure) mark(ctx context.Context, tx pgx.Tx, state, kind string, ids ...int64) error {
	tag, err := tx.Exec(
		ctx,
		"UPDATE cleanupd.erasure_item SET state = $4 WHERE erasure_id = $1::text::uuid AND kind = $2 AND item_id = "+
			"ANY ($3) AND state IN ('PENDING', 'PURGING')",
		e.id,
		kind,
		ids,
		state,
	)
	if err == nil && tag.RowsAffected() != int64(len(ids)) {
		err = errTaken
	}
	return err
}

// failed is the event about the problem of an item.
func failed(kind string, id int64, problem error) Event {
	what := "process instance"
	if kind == aTask {
		what = "orphan task"
	}
	return logged(severity.Error, fmt.Sprintf("%s %d could not be erased: %s", what, id, sqlstate.Explain(problem)))
}

// count records how many rows were deleted.
func (e *erasure) count(ctx context.Context, tx pgx.Tx, counts Rows) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.erasure_rows AS r (erasure_id, relation, rows) SELECT $1::text::uuid, key, value::bigint
			FROM jsonb_each_text($2)
		ON CONFLICT (erasure_id, relation) DO UPDATE SET rows = r.rows + EXCLUDED.rows`,
		e.id,
		counts,
	)
	return err
}

// settle records what a transaction did: items are done, rows were deleted, and sessions have documents that must be
// deleted afterwards.
func (e *erasure) settle(ctx context.Context, tx pgx.Tx, done *entry) error {
	if len(done.Items) > 0 {
		if err := e.mark(ctx, tx, "DONE", done.Kind, done.Items...); err != nil {
			return err
		}
	}
	if len(done.Kept) > 0 {
		if err := e.mark(ctx, tx, "FAILED", done.Kind, done.Kept...); err != nil {
			return err
		}
	}
	if err := e.count(ctx, tx, done.Rows); err != nil {
		return err
	}
	var sessions []string
	var items []int64
	for _, s := range done.Sessions {
		sessions, items = append(sessions, s.ID), append(items, s.Item)
	}
	if _, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.erasure_session (session_id, erasure_id, kind, item_id, forms)
			SELECT s, $1::text::uuid, $2, i, $5 FROM unnest($3::text[], $4::bigint[]) AS u (s, i)
		ON CONFLICT (forms, session_id) DO UPDATE SET erasure_id = EXCLUDED.erasure_id`,
		e.id,
		done.Kind,
		sessions,
		items,
		e.Forms.identity,
	); err != nil {
		return err
	}
	if err := e.forget(ctx, tx, done.Settled, nil); err != nil {
		return err
	}
	return e.append(ctx, tx, done.Events...)
}

// done is what a transaction did that has removed items, with everything that depends on them.
func (e *erasure) done(kind string, ids []int64, gone *removal, events []Event) *entry {
	done := &entry{Kind: kind, Items: ids, Rows: gone.total(), Events: events}
	if !e.InDatabase {
		done.Sessions = gone.sessions
	}
	return done
}

// attempts is how often a transaction about some items is tried, and how it locks their rows: several do not wait for
// one that is locked.
func attempts(ids []int64) (tries uint, lock string) {
	if len(ids) > 1 {
		return 1, " FOR UPDATE NOWAIT"
	}
	return maxTries, " FOR UPDATE"
}

// instances erases process instances.
func (e *erasure) instances(ctx context.Context, ids []int64) error {
	tries, lock := attempts(ids)
	return e.change(ctx, tries, func(tx *transaction) (*entry, error) {
		ids, passed, err := e.stillDue(ctx, tx, ids, lock)
		if err != nil {
			return nil, err
		}
		there, err := readInstances(ctx, tx, ids, lock)
		if err != nil {
			return nil, err
		}
		if _, err := tx.exec(
			ctx,
			"UPDATE tb_process_instance SET status = @terminated WHERE id IN (@ids) AND (status IN (@ended)) IS NOT "+
				"TRUE",
			args{"ids": ids, "terminated": terminated, "ended": []int64{complete, terminated}},
		); err != nil {
			return nil, err
		}
		gone, err := newRemover(tx, false).instances(ctx, ids, e.InDatabase)
		if err != nil {
			return nil, err
		}
		events := notDue(passed)
		for _, id := range ids {
			if there[id] != nil && gone.rows[id]["tb_process_instance"] == 0 {
				return nil, errKept
			}
			events = append(events, e.erased(id, there[id], gone.rows[id])...)
		}
		return e.done(anInstance, slices.Concat(ids, passed), gone, events), nil
	})
}

// erased are the events about a process instance whose rows were deleted, or would be. It may be gone itself (nil): the
// Forms server cannot purge it then, although other rows of it are left.
func (d *Database) erased(id int64, in *Instance, counts Rows) []Event {
	switch {
	case in != nil:
		return []Event{
			{Instance: &InstanceErased{ID: id, Invocation: in.Invocation, Terminated: !ended(in.Status), Rows: counts}},
		}
	case len(counts) == 0:
		return []Event{logged(severity.Info, fmt.Sprintf("there is no process instance %d", id))}
	case d.Manager != nil:
		return []Event{
			logged(
				severity.Error,
				fmt.Sprintf(
					"process instance %d is gone, but rows of it stay, in %s: the Forms server purges only what it "+
						"knows; erase it again with the database alone, while the Forms server is switched off",
					id,
					strings.Join(slices.Sorted(maps.Keys(counts)), ", "),
				),
			),
		}
	}
	return []Event{
		logged(severity.Info, fmt.Sprintf("process instance %d is gone itself; the rows that are left of it go", id)),
		{Instance: &InstanceErased{ID: id, Rows: counts}},
	}
}

// errKept says that a row was not deleted.
var errKept = errors.New("a trigger or rule of its table keeps it")

// orphans erases orphan tasks. One that by now belongs to a process instance, or does not exist, is reported.
func (e *erasure) orphans(ctx context.Context, ids []int64) error {
	tries, lock := attempts(ids)
	return e.change(ctx, tries, func(tx *transaction) (*entry, error) {
		r := newRemover(tx, false)
		orphans, kept, events, err := r.sort(ctx, ids, lock)
		if err != nil {
			return nil, err
		}
		gone, err := r.orphans(ctx, orphans, e.InDatabase)
		if err != nil {
			return nil, err
		}
		for _, o := range orphans {
			if o.there && gone.rows[o.id]["tb_task"] == 0 {
				return nil, errKept
			}
			events = append(events, Event{Task: &TaskErased{ID: o.id, Rows: gone.rows[o.id]}})
		}
		done := e.done(
			aTask,
			slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(kept, id) }),
			gone,
			events,
		)
		done.Kept = kept
		return done, nil
	})
}
