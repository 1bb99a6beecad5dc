package userdata

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// confirmAfter is how long the owner of a session must have been missing, since a Forms server stores documents
// before it commits the transaction that stores their task.
const confirmAfter = time.Hour

// observation is what a sweep sees in the Forms database when it begins.
type observation struct {
	dead    map[string]owner // sessions whose owners do not exist, with these owners
	highest map[string]int64 // the highest ids by table
}

func observe(ctx context.Context, tx *forms.Transaction, sessions []string) (o observation, err error) {
	o.highest = map[string]int64{}
	for _, table := range []string{"tb_task", "tb_form_data"} {
		var id int64
		query := "SELECT COALESCE(MAX(id), 0) FROM " + table
		if err := tx.Each(ctx, query, nil, []any{&id}, func() { o.highest[table] = id }); err != nil {
			return o, err
		}
	}
	o.dead, err = deadSessions(ctx, tx, sessions)
	return o, err
}

// isAbove reports whether the id of the session's owner is higher than all known ids. Such an owner may be about to
// be stored.
func (o observation) isAbove(session string) bool {
	owner := o.dead[session]
	return owner.id > o.highest[owner.table]
}

// raise raises the highest ids to those that earlier sweeps have seen.
func (o observation) raise(ctx context.Context, db external.Querier, formsID string) error {
	rows, _ := db.Query(ctx, "SELECT relation, id FROM cleanupd.highest_id WHERE forms_id = $1", formsID)
	var table string
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&table, &id}, func() error {
		o.highest[table] = max(o.highest[table], id)
		return nil
	})
	return err
}

// record stores the observation, which later sweeps need.
func (o observation) record(ctx context.Context, tx pgx.Tx, formsID string) error {
	for table, id := range o.highest {
		if err := tx.QueryRow(ctx, `INSERT INTO cleanupd.highest_id AS h (forms_id, relation, id) VALUES ($1, $2, $3)
			ON CONFLICT (forms_id, relation) DO UPDATE SET id = greatest(h.id, EXCLUDED.id) RETURNING id`,
			formsID, table, id).Scan(&id); err != nil {
			return err
		}
		o.highest[table] = id
	}
	below := slices.DeleteFunc(slices.Sorted(maps.Keys(o.dead)), o.isAbove)
	if _, err := tx.Exec(ctx, `DELETE FROM cleanupd.dead_session WHERE forms_id = $1
		AND NOT EXISTS (SELECT FROM unnest($2::text[]) AS dead (id) WHERE dead.id = session_id)`,
		formsID, below); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO cleanupd.dead_session (forms_id, session_id) SELECT $1, unnest($2::text[])
		ON CONFLICT DO NOTHING`, formsID, below)
	return err
}

// confirm records the observation, reports sessions that are not confirmed, and returns the confirmed ones.
func confirm(ctx context.Context, e *erasure, o observation) (confirmed map[string]bool, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		if err := o.record(ctx, tx, e.FormsID); err != nil {
			return err
		}
		var events []Event
		if confirmed, events, err = confirmedSessions(ctx, tx, e.FormsID, o); err != nil {
			return err
		}
		return e.appendEvents(ctx, tx, events...)
	})
	return confirmed, err
}

// confirmedSessions returns the dead sessions of an observation that were already found dead an hour ago or earlier,
// with events about the others.
func confirmedSessions(
	ctx context.Context, db external.Querier, formsID string, o observation,
) (confirmed map[string]bool, events []Event, err error) {
	if err := o.raise(ctx, db, formsID); err != nil {
		return nil, nil, err
	}
	rows, _ := db.Query(ctx, `SELECT session_id FROM cleanupd.dead_session WHERE forms_id = $1
		AND found_time <= clock_timestamp() - $2::bigint * interval '1 microsecond'`, formsID, confirmAfter.Microseconds())
	confirmed = map[string]bool{}
	var session string
	if _, err := pgx.ForEachRow(rows, []any{&session}, func() error {
		if _, dead := o.dead[session]; dead {
			confirmed[session] = true
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	above := 0
	for s := range o.dead {
		if !confirmed[s] && o.isAbove(s) {
			above++
		}
	}
	if recent := len(o.dead) - len(confirmed) - above; recent > 0 {
		events = append(events, warningf(
			"%d sessions name a task or form data that does not exist, but may be about to be stored: their documents are "+
				"retained until a sweep that follows another one, not a dry run, by an hour or more",
			recent,
		))
	}
	if above > 0 {
		events = append(events, warningf(
			"%d sessions name a task or form data with an id that is higher than all that were ever seen: their documents "+
				"are retained",
			above,
		))
	}
	return confirmed, events, nil
}
