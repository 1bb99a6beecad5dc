package userdata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks"
)

// erasure is an erasure in progress.
type erasure struct {
	*Database
	id   string
	conn *pgxpool.Conn // holds the advisory locks of the replica that works on it, and does the work: it ends when they are lost
}

// tasksAtOnce is how many orphan tasks are erased in one transaction.
const tasksAtOnce = 500

// lockTimeout is how long a statement waits for what the Forms server has locked.
const lockTimeout = 5 * time.Second

// begin opens a transaction of an erasure.
func (e *erasure) begin(ctx context.Context) (pgx.Tx, error) {
	return e.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = '10min'", lockTimeout.Milliseconds())})
}

// passing are the SQLSTATEs of transient errors, and maxTries is how often a transaction is tried.
var passing = []string{pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.LockNotAvailable}

const maxTries = 6

// transact runs fn in a transaction, and again after transient errors.
func (e *erasure) transact(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return e.transactUpTo(ctx, maxTries, fn)
}

// transactUpTo is transact with a number of tries.
func (e *erasure) transactUpTo(ctx context.Context, tries uint, fn func(tx pgx.Tx) error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		tx, err := e.begin(ctx)
		if err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if err = fn(tx); err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil && !sqlstate.Is(err, passing...) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxTries(tries))
	return err
}

// run does what an erasure has left to do. It fails only if the database is lost: the erasure must then be resumed.
func (e *erasure) run(ctx context.Context) error {
	ids, err := e.pending(ctx, anInstance)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := e.orFail(ctx, anInstance, id, e.instance(ctx, id)); err != nil {
			return err
		}
	}
	if ids, err = e.pending(ctx, aTask); err != nil {
		return err
	}
	for chunk := range slices.Chunk(ids, tasksAtOnce) {
		if err := e.orphansOrFail(ctx, chunk); err != nil {
			return err
		}
	}
	if err := e.documents(ctx); err != nil {
		return err
	}
	return e.finish(ctx)
}

func (e *erasure) pending(ctx context.Context, kind string) ([]int64, error) {
	return collect(ctx, e.Pool, pgx.RowTo[int64], "SELECT item_id FROM cleanupd.erasure_item WHERE erasure_id = $1::text::uuid AND kind = $2 AND state IN ('PENDING', 'PURGING') ORDER BY item_id", e.id, kind)
}

// errTaken says that another replica works on the erasure. It guards what it deletes and reports: the connection that does the
// work holds the erasure's lock.
var errTaken = errors.New("another replica is at work on the same")

// endsWork reports whether a problem is not that of an item but ends the work: a lost database, or another replica.
func endsWork(ctx context.Context, problem error) bool {
	return ctx.Err() != nil || tasks.Lost(problem) || errors.Is(problem, errTaken)
}

// orFail records that an item failed, unless the problem ends the work.
func (e *erasure) orFail(ctx context.Context, kind string, id int64, problem error) error {
	if problem == nil || endsWork(ctx, problem) {
		return problem
	}
	return e.transact(ctx, func(tx pgx.Tx) error {
		if err := e.mark(ctx, tx, "FAILED", kind, id); err != nil {
			return err
		}
		return e.append(ctx, tx, failed(kind, id, problem))
	})
}

// mark sets the state of items that are not settled yet; errTaken: one of them is.
func (e *erasure) mark(ctx context.Context, tx pgx.Tx, state, kind string, ids ...int64) error {
	tag, err := tx.Exec(ctx, "UPDATE cleanupd.erasure_item SET state = $4 WHERE erasure_id = $1::text::uuid AND kind = $2 AND item_id = ANY ($3) AND state IN ('PENDING', 'PURGING')", e.id, kind, ids, state)
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
	return logged(tasks.Error, fmt.Sprintf("%s %d could not be erased: %s", what, id, tasks.Explain(problem)))
}

// orphansOrFail erases orphan tasks together or, if one of them cannot be erased, one by one, so that the others are.
func (e *erasure) orphansOrFail(ctx context.Context, ids []int64) error {
	problem := e.orphans(ctx, ids)
	if len(ids) == 1 || problem == nil || endsWork(ctx, problem) {
		return e.orFail(ctx, aTask, ids[0], problem)
	}
	for _, id := range ids {
		if err := e.orFail(ctx, aTask, id, e.orphans(ctx, []int64{id})); err != nil {
			return err
		}
	}
	return nil
}

// count records how many rows were deleted.
func (e *erasure) count(ctx context.Context, tx pgx.Tx, counts Rows) error {
	_, err := tx.Exec(ctx, `INSERT INTO cleanupd.erasure_rows AS r (erasure_id, relation, rows) SELECT $1::text::uuid, key, value::bigint FROM jsonb_each_text($2)
		ON CONFLICT (erasure_id, relation) DO UPDATE SET rows = r.rows + EXCLUDED.rows`, e.id, counts)
	return err
}

// done records that items are done, what was deleted, and the sessions whose documents must be deleted afterwards.
func (e *erasure) done(ctx context.Context, tx pgx.Tx, kind string, ids []int64, counts Rows, sessions []session, itemOf func(session) int64, events ...Event) error {
	if err := e.mark(ctx, tx, "DONE", kind, ids...); err != nil {
		return err
	}
	if err := e.count(ctx, tx, counts); err != nil {
		return err
	}
	if !e.InDatabase {
		var sessionIDs []string
		var items []int64
		for _, s := range sessions {
			sessionIDs, items = append(sessionIDs, s.id), append(items, itemOf(s))
		}
		if _, err := tx.Exec(ctx, `INSERT INTO cleanupd.erasure_session (session_id, erasure_id, kind, item_id) SELECT s, $1::text::uuid, $2, i FROM unnest($3::text[], $4::bigint[]) AS u (s, i)
			ON CONFLICT (session_id) DO UPDATE SET erasure_id = EXCLUDED.erasure_id`, e.id, kind, sessionIDs, items); err != nil {
			return err
		}
	}
	return e.append(ctx, tx, events...)
}

// instance erases a process instance.
func (e *erasure) instance(ctx context.Context, id int64) error {
	if e.Manager != nil {
		return e.instanceByServer(ctx, id)
	}
	return e.transact(ctx, func(tx pgx.Tx) error {
		item := func(session) int64 { return id }
		in, err := readInstance(ctx, tx, id, " FOR UPDATE")
		if err != nil {
			return err
		}
		if in != nil && !ended(in.Status) {
			if _, err := tx.Exec(ctx, "UPDATE tb_process_instance SET status = $2 WHERE id = $1", id, terminated); err != nil {
				return err
			}
		}
		counts, sessions, err := (&remover{tx: tx}).instance(ctx, id, e.InDatabase)
		if err != nil {
			return err
		}
		if in != nil && counts["tb_process_instance"] == 0 {
			return errKept
		}
		return e.done(ctx, tx, anInstance, []int64{id}, counts, sessions, item, e.erased(id, in, counts)...)
	})
}

// erased are the events about a process instance whose rows were deleted, or would be. It may be gone itself (nil): the Forms
// server cannot purge it then, although other rows of it are left.
func (d *Database) erased(id int64, in *Instance, counts Rows) []Event {
	switch {
	case in != nil:
		return []Event{{Instance: &InstanceErased{ID: id, Invocation: in.Invocation, Terminated: !ended(in.Status), Rows: counts}}}
	case len(counts) == 0:
		return []Event{logged(tasks.Info, fmt.Sprintf("there is no process instance %d", id))}
	case d.Manager != nil:
		return []Event{logged(tasks.Warning, fmt.Sprintf("process instance %d is gone, but rows of it stay, in %s: the Forms server purges only what it knows; erase it again with the database alone, while the Forms server is switched off",
			id, strings.Join(slices.Sorted(maps.Keys(counts)), ", ")))}
	}
	return []Event{logged(tasks.Info, fmt.Sprintf("process instance %d is gone itself; the rows that are left of it go", id)), {Instance: &InstanceErased{ID: id, Rows: counts}}}
}

// instanceByServer has the Forms server erase a process instance. The request is recorded first, so that an instance that is
// gone after a crash counts as erased.
func (e *erasure) instanceByServer(ctx context.Context, id int64) error {
	var state string
	if err := e.Pool.QueryRow(ctx, "SELECT state FROM cleanupd.erasure_item WHERE erasure_id = $1::text::uuid AND kind = $2 AND item_id = $3", e.id, anInstance, id).Scan(&state); err != nil {
		return err
	}
	in, err := readInstance(ctx, e.Pool, id, "")
	if err != nil {
		return err
	}
	if in != nil {
		if err := e.transact(ctx, func(tx pgx.Tx) error { return e.mark(ctx, tx, "PURGING", anInstance, id) }); err != nil {
			return err
		}
		if err := e.purgeByServer(ctx, in); err != nil {
			return err
		}
	} else if state == "PURGING" {
		in = &Instance{ID: id, Status: terminated}
	}
	return e.transact(ctx, func(tx pgx.Tx) error {
		var left Rows
		if in == nil {
			if left, _, err = (&remover{tx: tx, dry: true}).instance(ctx, id, e.InDatabase); err != nil {
				return err
			}
		}
		return e.done(ctx, tx, anInstance, []int64{id}, Rows{}, nil, nil, e.erased(id, in, left)...)
	})
}

// errKept says that a row was not deleted.
var errKept = errors.New("a trigger or rule of its table keeps it")

// orphans erases orphan tasks. One that by now belongs to a process instance, or does not exist, is reported. Several do not
// wait for one that is locked.
func (e *erasure) orphans(ctx context.Context, ids []int64) error {
	tries, lock := uint(maxTries), " FOR UPDATE"
	if len(ids) > 1 {
		tries, lock = 1, " FOR UPDATE NOWAIT"
	}
	return e.transactUpTo(ctx, tries, func(tx pgx.Tx) error {
		erased, events, err := sortTasks(ctx, tx, ids, nil, lock)
		if err != nil {
			return err
		}
		r := &remover{tx: tx}
		byTask, sessions, err := r.tasks(ctx, 0, erased)
		if err != nil {
			return err
		}
		counts := Rows{}
		if e.InDatabase {
			if counts, err = r.documents(ctx, idsOf(sessions)); err != nil {
				return err
			}
		}
		for _, id := range erased {
			if byTask[id]["tb_task"] == 0 {
				return errKept
			}
			counts.add(byTask[id])
			events = append(events, Event{Task: &TaskErased{ID: id, Rows: byTask[id]}})
		}
		return e.done(ctx, tx, aTask, ids, counts, sessions, func(s session) int64 { return s.task }, events...)
	})
}

// sortTasks finds out which tasks are orphans, and reports why the others stay. Tasks in gone have already been erased.
func sortTasks(ctx context.Context, tx pgx.Tx, ids, gone []int64, lock string) (orphans []int64, events []Event, err error) {
	type task struct {
		ID       int64
		Instance *int64
	}
	there, err := collect(ctx, tx, pgx.RowToStructByPos[task], "SELECT id::bigint, process_instance_id::bigint FROM tb_task WHERE id = ANY ($1) AND id <> ALL ($2) ORDER BY id"+lock, ids, append([]int64{}, gone...))
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		i := slices.IndexFunc(there, func(t task) bool { return t.ID == id })
		switch {
		case i < 0:
			events = append(events, logged(tasks.Info, fmt.Sprintf("there is no task %d", id)))
		case there[i].Instance == nil:
			events = append(events, logged(tasks.Warning, fmt.Sprintf("task %d stays: it is not known whether it belongs to a process instance", id)))
		case *there[i].Instance != 0:
			events = append(events, logged(tasks.Warning, fmt.Sprintf("task %d stays: it belongs to process instance %d", id, *there[i].Instance)))
		default:
			orphans = append(orphans, id)
		}
	}
	return orphans, events, nil
}
