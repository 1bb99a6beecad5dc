package userdata

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/internal/severity"
)

// deadAfter is how long the task or form data of a session must have been missing for a sweep: a Forms server stores
// documents before the transaction that stores their task is committed.
const deadAfter = time.Hour

// owner is the task or form data that a session belongs to.
type owner struct {
	table string
	id    int64
}

// ofTask is the session id of a document that belongs to a task, or to form data.
var ofTask = regexp.MustCompile(`^_wf(attach|task|taskformid)([1-9][0-9]{0,18})$`)

// ownerOf returns what a session belongs to; the zero owner for a session of another form.
func ownerOf(session string) owner {
	m := ofTask.FindStringSubmatch(session)
	if m == nil {
		return owner{}
	}
	id, err := strconv.ParseInt(m[2], 10, 64)
	switch {
	case err != nil: // too large for an id
		return owner{}
	case m[1] == "attach":
		return owner{"tb_task", id}
	}
	return owner{"tb_form_data", id}
}

// withoutOwner returns those of some sessions whose task or form data does not exist, with what they belong to.
func withoutOwner(ctx context.Context, tx *transaction, sessions []string) (map[string]owner, error) {
	dead, ids := map[string]owner{}, map[string]map[int64]bool{} // by table
	for _, s := range sessions {
		if o := ownerOf(s); o != (owner{}) {
			dead[s] = o
			if ids[o.table] == nil {
				ids[o.table] = map[int64]bool{}
			}
			ids[o.table][o.id] = true
		}
	}
	there := map[owner]bool{}
	for table, ids := range ids {
		for some := range slices.Chunk(slices.Sorted(maps.Keys(ids)), idsAtOnce) {
			var id int64
			if err := tx.each(
				ctx,
				"SELECT id FROM "+table+" WHERE id IN (@ids)",
				args{"ids": some},
				[]any{&id},
				func() { there[owner{table, id}] = true },
			); err != nil {
				return nil, err
			}
		}
	}
	maps.DeleteFunc(dead, func(_ string, o owner) bool { return there[o] })
	return dead, nil
}

// look is what a sweep sees at its beginning.
type look struct {
	dead    map[string]owner // the sessions without their owners
	highest map[string]int64 // ids, by table
}

// lookAt looks at some sessions.
func lookAt(ctx context.Context, tx *transaction, sessions []string) (l look, err error) {
	l.highest = map[string]int64{}
	for _, table := range []string{"tb_task", "tb_form_data"} {
		var id int64
		if err := tx.each(
			ctx,
			"SELECT COALESCE(MAX(id), 0) FROM "+table,
			nil,
			[]any{&id},
			func() { l.highest[table] = id },
		); err != nil {
			return l, err
		}
	}
	l.dead, err = withoutOwner(ctx, tx, sessions)
	return l, err
}

// raise raises the highest ids of the look to those that earlier ones saw.
func (l look) raise(ctx context.Context, db outside.Querier, forms string) error {
	rows, err := db.Query(ctx, "SELECT relation, id FROM cleanupd.highest_id WHERE forms = $1", forms)
	if err != nil {
		return err
	}
	var table string
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&table, &id}, func() error {
		l.highest[table] = max(l.highest[table], id)
		return nil
	})
	return err
}

// above reports whether a session's owner may be about to be stored, since its id is above the highest that was seen.
func (l look) above(session string) bool {
	o := l.dead[session]
	return o.id > l.highest[o.table]
}

// confirm records the look, logs which sessions are not confirmed, and returns those that are.
func (e *erasure) confirm(ctx context.Context, l look) (confirmed map[string]bool, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		for table, id := range l.highest {
			if err := tx.QueryRow(ctx, `INSERT INTO cleanupd.highest_id AS h (forms, relation, id) VALUES ($1, $2, $3)
				ON CONFLICT (forms, relation) DO UPDATE SET id = greatest(h.id, EXCLUDED.id) RETURNING id`, e.Forms.identity, table, id).Scan(&id); err != nil {
				return err
			}
			l.highest[table] = id
		}
		below := slices.DeleteFunc(slices.Sorted(maps.Keys(l.dead)), l.above)
		if _, err := tx.Exec(
			ctx,
			"DELETE FROM cleanupd.dead_session WHERE forms = $1 AND NOT EXISTS (SELECT FROM unnest($2::text[]) AS "+
				"dead (id) WHERE dead.id = session_id)",
			e.Forms.identity,
			below,
		); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			"INSERT INTO cleanupd.dead_session (forms, session_id) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING",
			e.Forms.identity,
			below,
		); err != nil {
			return err
		}
		var events []Event
		if confirmed, events, err = e.confirmed(ctx, tx, l); err != nil {
			return err
		}
		return e.append(ctx, tx, events...)
	})
	return confirmed, err
}

// confirmed returns the dead sessions of a look that were dead in another one, an hour ago or earlier, and reports how
// many are not.
func (d *Database) confirmed(
	ctx context.Context,
	db outside.Querier,
	l look,
) (confirmed map[string]bool, events []Event, err error) {
	if err := l.raise(ctx, db, d.Forms.identity); err != nil {
		return nil, nil, err
	}
	sessions, err := collect(
		ctx,
		db,
		pgx.RowTo[string],
		"SELECT session_id FROM cleanupd.dead_session WHERE forms = $1 AND found_time <= clock_timestamp() - "+
			"$2::bigint * interval '1 microsecond'",
		d.Forms.identity,
		deadAfter.Microseconds(),
	)
	if err != nil {
		return nil, nil, err
	}
	confirmed = set(sessions)
	maps.DeleteFunc(confirmed, func(s string, _ bool) bool { return l.dead[s] == owner{} })
	above := 0
	for s := range l.dead {
		if !confirmed[s] && l.above(s) {
			above++
		}
	}
	if recent := len(l.dead) - len(confirmed) - above; recent > 0 {
		events = append(
			events,
			logged(
				severity.Warning,
				fmt.Sprintf(
					"%d sessions name a task or form data that does not exist, but may be about to be stored: their "+
						"documents are retained until a sweep that follows another one, not a dry run, by an hour or "+
						"more",
					recent,
				),
			),
		)
	}
	if above > 0 {
		events = append(
			events,
			logged(
				severity.Warning,
				fmt.Sprintf(
					"%d sessions name a task or form data with an id that is higher than all that were ever seen: "+
						"their documents are retained",
					above,
				),
			),
		)
	}
	return confirmed, events, nil
}
