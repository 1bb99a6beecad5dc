package userdata

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
)

// Purge identifies the erasures of a purge in a run.
type purgeRun struct{ RunID, Name string }

// ofPurge is the condition that the erasure e belongs to the purge $2 in the run $1.
const ofPurge = "e.run_id = $1::text::uuid AND e.purge ->> 'Name' = $2"

// Unfinished returns an erasure of the purge that has not ended, or "" if all have ended.
func (p purgeRun) unfinished(ctx context.Context, db external.Querier) (id string, err error) {
	err = db.QueryRow(ctx, "SELECT e.id::text FROM cleanupd.erasure e WHERE e.state = 'PURGING' AND "+ofPurge, p.RunID,
		p.Name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return id, err
}

// New returns those of the process instances that are not an item of any erasure of the purge.
func (p purgeRun) unrequested(ctx context.Context, tx pgx.Tx, instances []int64) ([]int64, error) {
	rows, _ := tx.Query(ctx, `SELECT id FROM unnest($3::bigint[]) AS candidate (id)
		WHERE NOT EXISTS (SELECT FROM cleanupd.erasure_item i JOIN cleanupd.erasure e ON e.id = i.erasure_id
			WHERE i.item_id = candidate.id AND i.kind = $4 AND `+ofPurge+") ORDER BY id",
		p.RunID, p.Name, instances, kindInstance)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func (p purgeRun) rows(ctx context.Context, db external.Querier) (n int64, err error) {
	err = db.QueryRow(ctx, "SELECT COALESCE(sum(r.rows), 0)::bigint FROM cleanupd.erasure_rows r "+
		"JOIN cleanupd.erasure e ON e.id = r.erasure_id WHERE "+ofPurge, p.RunID, p.Name).Scan(&n)
	return n, err
}

func (p purgeRun) instances(ctx context.Context, db external.Querier) (n int64, err error) {
	err = db.QueryRow(ctx, "SELECT count(*) FROM cleanupd.erasure_item i "+
		"JOIN cleanupd.erasure e ON e.id = i.erasure_id WHERE i.state = 'DONE' AND "+ofPurge, p.RunID, p.Name).Scan(&n)
	return n, err
}

// Failures counts the process instances that could not be erased and the sessions whose documents could not be
// deleted. It returns a receipt that has the reasons, or "" if nothing failed.
func (p purgeRun) failures(
	ctx context.Context, db external.Querier,
) (receipt string, instances, sessions int64, err error) {
	err = db.QueryRow(ctx, `SELECT COALESCE(min(e.id::text), ''), COALESCE(sum((SELECT count(*) FROM cleanupd.erasure_item
		WHERE erasure_id = e.id AND state = 'FAILED')), 0)::bigint,
		COALESCE(sum((SELECT count(*) FROM cleanupd.erasure_session WHERE erasure_id = e.id)), 0)::bigint
			FROM cleanupd.erasure e WHERE e.state = 'FAILED' AND `+ofPurge, p.RunID, p.Name).
		Scan(&receipt, &instances, &sessions)
	return receipt, instances, sessions, err
}

// RecentlyPurged counts the process instances that all purges of a Forms database deleted in the given run and in
// runs that began less than a period before it. It leaves out runs for which the guard on the table's share was
// accepted. It still counts the process instances of runs whose record has been deleted.
func recentlyPurged(
	ctx context.Context, db external.Querier, forms, table, run string, period time.Duration,
) (n int64, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM cleanupd.erasure e
		JOIN cleanupd.erasure_event v ON v.erasure_id = e.id AND v.body ? 'Instance' LEFT
		JOIN cleanupd.run r ON r.id = e.run_id
		WHERE e.forms_id = $1 AND e.purge IS NOT NULL
			AND (r.accepted_guards @> jsonb_build_array(jsonb_build_object('Guard', 'share', 'Table', $2::text))) IS NOT TRUE
		AND (e.run_id = $3::text::uuid OR COALESCE(r.start_time, e.create_time) > (SELECT start_time FROM cleanupd.run
			WHERE id = $3::text::uuid) - $4::bigint * interval '1 microsecond')`,
		forms, table, run, period.Microseconds()).
		Scan(&n)
	return n, err
}
