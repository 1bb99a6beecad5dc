package execute

import (
	"context"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// mayHaveHeld reports whether a work table can have a row of a held recipient.
func (t *task) mayHaveHeld(w campaign.WorkTable) bool {
	return w.Recipients && len(t.Holds.Recipients) > 0
}

// haveHeld tells, by their names, which of those work tables that can have a row of a held recipient have one. One that
// cannot be read has.
func (t *task) haveHeld(ctx context.Context, tables []campaign.WorkTable) (held map[string]bool, err error) {
	held = map[string]bool{}
	unread, first := 0, ""
	for _, w := range tables {
		if !t.mayHaveHeld(w) {
			continue
		}
		has, err := t.askAlone(ctx, w)
		if sqlstate.Of(err) != "" && !endsDrops(err) {
			if unread++; unread == 1 {
				first = w.Name + ": " + purge.Message(err)
			}
			has, err = true, nil
		}
		if err != nil {
			return nil, err
		}
		held[w.Name] = has
	}
	if unread > 0 {
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf(
				"%d tables may have held rows and could not be read: they stay; the first is %s",
				unread,
				first,
			),
		)
	}
	return held, nil
}

// askAlone is hasHeld in a transaction of its own.
func (t *task) askAlone(ctx context.Context, w campaign.WorkTable) (bool, error) {
	if err := t.engine.Recorder.Proceed(ctx); err != nil {
		return false, err
	}
	if err := t.engine.Wait(ctx); err != nil {
		return false, err
	}
	tx, err := t.engine.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	return t.hasHeld(ctx, tx, w)
}

// hasHeld reports whether a work table has a row of a held recipient. It fails where a policy might hide one.
func (t *task) hasHeld(ctx context.Context, tx Tx, w campaign.WorkTable) (held bool, err error) {
	if !t.mayHaveHeld(w) {
		return false, nil
	}
	if _, err := tx.Exec(ctx, "SET LOCAL row_security = off"); err != nil {
		return false, err
	}
	is := "irecipientid = ANY ($1::bigint[])"
	if w.RecipientTexts { // "7", " 7", "7.0"
		is = `CASE WHEN irecipientid::text ~ '^\s*[+-]?[0-9]+(\.0*)?\s*$' THEN irecipientid::text::numeric = ANY ($1::bigint[]) END`
	}
	err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+w.Quoted()+" WHERE "+is+")", t.Holds.Recipients).Scan(&held)
	return held, err
}

// refuseHeld fails with errTableHeld if one of the tables of lists is held, or has a row of a held recipient.
func (t *task) refuseHeld(ctx context.Context, tx Tx, tables []campaign.WorkTable) error {
	for _, w := range tables {
		held := t.Holds.WorkTable(w, "")
		if !held {
			var err error
			if held, err = t.hasHeld(ctx, tx, w); err != nil {
				return err
			}
		}
		if held {
			return errTableHeld
		}
	}
	return nil
}
