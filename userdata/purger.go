package userdata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// purger is a purge as the work of a task.
type purger struct {
	*Database
	by Purge
}

// TaskPrefix begins the names of the tasks that are purges.
const TaskPrefix = "forms/"

// Tasks is where the purges come from as tasks of runs. They are read from the database in which runs are, too.
func (d *Database) Tasks() *outside.Source {
	return &outside.Source{
		Prefix: TaskPrefix,
		Tasks: func(ctx context.Context, db outside.Querier) (list []outside.Task, err error) {
			all, err := d.purges(ctx, db)
			for _, p := range all {
				list = append(list, outside.Task{
					Name:     TaskPrefix + p.Name,
					Title:    "Process instances: " + p.what(),
					Disabled: !p.Enabled,
					Description: fmt.Sprintf(
						"Process instances of AEM Forms, with their tasks, data and documents: of %s, complete or "+
							"terminated, and %s older than %d days.",
						p.what(),
						p.DateColumn,
						p.Days,
					),
					Basis: fmt.Sprintf("%s, %s older than %d days", p.what(), p.DateColumn, p.Days),
					Work:  purger{d, p},
				})
			}
			return list, err
		},
	}
}

// Due implements outside.Work.
func (p purger) Due(ctx context.Context, now time.Time) (*outside.Due, error) {
	r := p.by.at(now)
	due := &outside.Due{Table: instancesTable, Rule: r.inWords(), Cutoff: time.Unix(r.Cutoff, 0)}
	err := p.Forms.snapshot(ctx, func(tx *transaction) error {
		if err := p.check(ctx, tx); err != nil {
			return err
		}
		if err := tx.each(ctx, "SELECT count(*) FROM "+instancesTable, nil, []any{&due.Total}, func() {}); err != nil {
			return err
		}
		s, err := r.search(ctx, tx)
		if err != nil {
			return err
		}
		due.Notes = s.notes
		return s.all(
			ctx,
			func(id int64, date time.Time) { due.Items = append(due.Items, outside.Item{ID: id, Date: date}) },
		)
	})
	return due, p.explained(ctx, err)
}

// Foresee implements outside.Work. What the Forms server deletes with a process instance is not known.
func (p purger) Foresee(
	ctx context.Context,
	due *outside.Due,
	found func(ctx context.Context, rows map[string]int64) error,
) error {
	err := p.Forms.snapshot(ctx, func(tx *transaction) error {
		r := newRemover(tx, true)
		for some := range slices.Chunk(due.Items, atOnce) {
			rows := Rows{instancesTable: int64(len(some))}
			if p.Manager == nil {
				gone, err := r.instances(ctx, idsOf(some), p.InDatabase)
				if err != nil {
					return err
				}
				rows = gone.total()
			}
			if err := found(ctx, rows); err != nil {
				return err
			}
		}
		return nil
	})
	return p.explained(ctx, err)
}

func idsOf(items []outside.Item) (ids []int64) {
	for _, i := range items {
		ids = append(ids, i.ID)
	}
	return ids
}

// toAReceipt is how many process instances a receipt has at most: the folder is searched once for each.
const toAReceipt = 10_000

// Purge implements outside.Work. What is due is erased as if it had been requested, so that each receipt says what
// went, and documents whose files could not be deleted are not forgotten.
func (p purger) Purge(
	ctx context.Context,
	run string,
	due *outside.Due,
	done func(ctx context.Context, rows int64) error,
) error {
	if err := p.Own(ctx); err != nil {
		return err
	}
	r := rule{p.by, due.Cutoff.Unix()}
	told := func(ctx context.Context) error {
		rows, err := p.Purged(ctx, run)
		if err != nil {
			return err
		}
		return done(ctx, rows)
	}
	for ids := idsOf(due.Items); ; {
		id, err := p.unfinished(ctx, run)
		if err == nil && id == "" {
			if len(ids) == 0 {
				break
			}
			some := ids[:min(len(ids), toAReceipt)]
			ids = ids[len(some):]
			id, err = p.request(ctx, run, r, some)
		}
		if err != nil {
			return p.explained(ctx, err)
		}
		if id == "" { // all of these were dealt with by another worker
			continue
		}
		mine := false
		err = p.hold(ctx, id, func(e *erasure, ctx context.Context) error {
			mine, e.told = true, told
			if err := e.run(ctx); err != nil || e.stop == nil {
				return err
			}
			return e.stop.error
		})
		switch {
		case errors.As(err, new(*heldError)): // the run learns of the hold when it counts, and begins the task anew
			return cmp.Or(told(ctx), err)
		case err != nil:
			return p.explained(ctx, err)
		case !mine: // a replica that lost the run still has it
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(lookEvery):
			}
		}
	}
	if err := told(ctx); err != nil { // of a worker that ended between its last transaction and its report
		return err
	}
	return p.stayed(ctx, run)
}

// ofRun is the condition that an erasure e is that of a purge in a run.
const ofRun = "e.run_id = $1::text::uuid AND e.purge ->> 'Name' = $2"

// Purged implements outside.Work. Of what the Forms server has purged, it counts the process instances.
func (p purger) Purged(ctx context.Context, run string) (rows int64, err error) {
	sql := "SELECT COALESCE(sum(r.rows), 0)::bigint FROM cleanupd.erasure_rows r JOIN cleanupd.erasure e ON e.id = " +
		"r.erasure_id WHERE " + ofRun
	if p.Manager != nil {
		sql = "SELECT count(*) FROM cleanupd.erasure_item i JOIN cleanupd.erasure e ON e.id = i.erasure_id WHERE " +
			"i.state = 'DONE' AND " + ofRun
	}
	return rows, p.Record.QueryRow(ctx, sql, run, p.by.Name).Scan(&rows)
}

// Lately implements outside.Work. It does not depend on how long runs are remembered.
func (p purger) Lately(ctx context.Context, run string, period time.Duration) (items int64, err error) {
	err = p.Record.QueryRow(ctx, `SELECT count(*) FROM cleanupd.erasure e
		JOIN cleanupd.erasure_event v ON v.erasure_id = e.id AND v.body ? 'Instance' LEFT
		JOIN cleanupd.run r ON r.id = e.run_id
		WHERE e.forms = $1 AND e.purge IS NOT NULL
			AND (r.accepted @> jsonb_build_array(jsonb_build_object('Guard', 'share', 'Table', $2::text))) IS NOT TRUE
		AND (e.run_id = $3::text::uuid OR COALESCE(r.start_time, e.create_time) > (SELECT start_time FROM cleanupd.run
			WHERE id = $3::text::uuid) - $4::bigint * interval '1 microsecond')`,
		p.Forms.identity, instancesTable, run, period.Microseconds()).
		Scan(&items)
	return items, err
}

// unfinished is the erasure of the purge in a run that has not ended; empty: all have.
func (p purger) unfinished(ctx context.Context, run string) (id string, err error) {
	err = p.Record.QueryRow(
		ctx,
		"SELECT e.id::text FROM cleanupd.erasure e WHERE e.state = 'PURGING' AND "+ofRun,
		run,
		p.by.Name,
	).
		Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return id, err
}

// request stores an erasure of those process instances that the run has not dealt with, and returns its id; empty:
// there are none.
func (p purger) request(ctx context.Context, run string, r rule, ids []int64) (id string, err error) {
	key, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	err = pgx.BeginFunc(ctx, p.Record, func(tx pgx.Tx) error {
		fresh, err := collect(ctx, tx, pgx.RowTo[int64], `SELECT id FROM unnest($3::bigint[]) AS due (id)
			WHERE NOT EXISTS (SELECT FROM cleanupd.erasure_item i JOIN cleanupd.erasure e ON e.id = i.erasure_id
				WHERE i.item_id = due.id AND i.kind = $4 AND `+ofRun+") ORDER BY id", run, p.by.Name, ids, anInstance)
		if err != nil || len(fresh) == 0 {
			return err
		}
		id = key.String()
		e := &erasure{Database: p.Database, id: id}
		if _, err := tx.Exec(
			ctx,
			"INSERT INTO cleanupd.erasure (id, forms, requested_by, user_id_hash, salt, state, run_id, purge, "+
				"heartbeat) VALUES ($1::text::uuid, $2, $3, '', '', 'PURGING', $4::text::uuid, $5, clock_timestamp())",
			id,
			p.Forms.identity,
			"run "+run,
			run,
			r,
		); err != nil {
			return err
		}
		return e.insertItems(ctx, tx, fresh, nil)
	})
	return id, err
}

// stayed fails if process instances of the purge, or documents of theirs, stay after a run.
func (p purger) stayed(ctx context.Context, run string) error {
	var receipt *string
	var items, sessions int64
	err := p.Record.QueryRow(ctx, `SELECT min(e.id::text), COALESCE(sum((SELECT count(*) FROM cleanupd.erasure_item
		WHERE erasure_id = e.id AND state = 'FAILED')), 0)::bigint,
		COALESCE(sum((SELECT count(*) FROM cleanupd.erasure_session WHERE erasure_id = e.id)), 0)::bigint
			FROM cleanupd.erasure e WHERE e.state = 'FAILED' AND `+ofRun, run, p.by.Name).
		Scan(&receipt, &items, &sessions)
	if err != nil || receipt == nil {
		return err
	}
	return fmt.Errorf(
		"process instances that could not be erased: %d, sessions whose documents stay: %d; receipt %s says which, "+
			"and why",
		items,
		sessions,
		*receipt,
	)
}

// explained is an error of the purge: that the Forms database is lost says nothing about the run, which has another
// one.
func (p purger) explained(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && p.Forms.lost(err) && p.Ready(ctx) != nil {
		return errors.New("the Forms database is not available: " + sqlstate.Explain(err))
	}
	return err
}

// Statements implements outside.Work.
func (p purger) Statements(ctx context.Context, now time.Time) (list []outside.Statement, err error) {
	r := p.by.at(now)
	err = p.Forms.snapshot(ctx, func(tx *transaction) error {
		s, err := r.search(ctx, tx)
		if err != nil {
			return err
		}
		values := strings.NewReplacer(
			"@ended",
			fmt.Sprintf("%d, %d", complete, terminated),
			"@cutoff",
			fmt.Sprint(r.Cutoff),
			"@after",
			"0",
		)
		list = append(
			list,
			outside.Statement{
				Table: instancesTable,
				Rule:  r.inWords(),
				SQL:   values.Replace(s.statement("r.id > @after", fmt.Sprintf(" LIMIT %d", page))),
			},
		)
		for _, c := range s.tables {
			list = append(
				list,
				outside.Statement{Table: c.Table, Rule: "of the workflow", SQL: s.ofWorkflow(c, []int64{1, 2, 3})},
			)
		}
		list = append(
			list,
			outside.Statement{
				Table:   instancesTable,
				Rule:    "found above, and found again in the transaction that deletes, with all that belongs to it",
				Deletes: true,
			},
		)
		return nil
	})
	return list, p.explained(ctx, err)
}
