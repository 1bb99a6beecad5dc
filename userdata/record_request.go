package userdata

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/external"
)

type request struct {
	FormsID          string
	RequestedBy      string
	UserIDHash       string // empty unless a user id was given
	Salt             string
	Sweep            bool
	RunID            string    // the run that the erasure belongs to; empty if a user requested it
	Purge            *criteria // set together with RunID
	Instances, Tasks []int64
}

// Insert stores the request. The id of the erasure is higher than the ids of all earlier requests.
func (r request) insert(ctx context.Context, tx pgx.Tx) (e record, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return e, err
	}
	e = record{id.String(), r.FormsID}
	if _, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.erasure
			(id, forms_id, requested_by, user_id_hash, salt, sweep, purge, run_id, state, heartbeat)
		VALUES ($1::text::uuid, $2, $3, $4, $5, $6, $7, NULLIF($8::text, '')::uuid,
			CASE WHEN $8::text = '' THEN 'RUNNING' ELSE 'PURGING' END,
			CASE WHEN $8::text = '' THEN NULL ELSE clock_timestamp() END)`,
		e.ID, r.FormsID, connection.Text(r.RequestedBy), r.UserIDHash, r.Salt, r.Sweep, r.Purge, r.RunID,
	); err != nil {
		return e, err
	}
	return e, e.insertItems(ctx, tx, r.Instances, r.Tasks)
}

// Leftover is a session of an erasure that ended before the session's documents were deleted.
type leftover struct{ Session, Erasure string }

// ByUser returns earlier erasures of a user that have leftovers. Comparing the user id with the hashes of many
// erasures takes longer than a transaction may be idle.
func failedErasuresOf(ctx context.Context, db external.Querier, forms, user string) (erasures []string, err error) {
	rows, _ := db.Query(
		ctx,
		"SELECT id::text, user_id_hash, salt FROM cleanupd.erasure AS e WHERE forms_id = $1 AND state = 'FAILED' AND "+
			"user_id_hash <> '' AND EXISTS (SELECT FROM cleanupd.erasure_session WHERE erasure_id = e.id)",
		forms,
	)
	var id, hash, salt string
	_, err = pgx.ForEachRow(rows, []any{&id, &hash, &salt}, func() error {
		same, err := isUser(user, hash, salt)
		if same {
			erasures = append(erasures, id)
		}
		return err
	})
	return erasures, err
}

// Leftovers returns the leftovers of the given earlier erasures, and of earlier erasures of the request's items. The
// clause lock locks their rows, unless it is empty.
func (r request) leftovers(
	ctx context.Context, db external.Querier, earlier []string, lock string,
) ([]leftover, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT s.session_id, e.id::text FROM cleanupd.erasure_session AS s
			JOIN cleanupd.erasure AS e ON e.id = s.erasure_id
		WHERE e.forms_id = $6 AND e.state = 'FAILED' AND (e.id::text = ANY ($1) OR s.kind = $2 AND s.item_id = ANY ($3)
			OR s.kind = $4 AND s.item_id = ANY ($5))`+lock,
		earlier, kindInstance, r.Instances, kindTask, r.Tasks, r.FormsID,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[leftover])
}

// Inherit moves the leftovers of earlier erasures to e, with the files that the earlier erasures could not report.
func (r request) inherit(ctx context.Context, tx pgx.Tx, e record, earlier []string) error {
	leftovers, err := r.leftovers(ctx, tx, earlier, " FOR UPDATE OF s")
	if err != nil {
		return err
	}
	var sessions, erasures []string
	for _, l := range leftovers {
		sessions, erasures = append(sessions, l.Session), append(erasures, l.Erasure)
	}
	if _, err := e.exec(ctx, tx, `UPDATE cleanupd.erasure_session SET erasure_id = $1::text::uuid
		WHERE forms_id = $3 AND session_id = ANY ($2)`, sessions, r.FormsID); err != nil {
		return err
	}
	_, err = e.exec(ctx, tx, `UPDATE cleanupd.erasure_file SET erasure_id = $1::text::uuid
		WHERE erasure_id::text = ANY ($2)`, erasures)
	return err
}
