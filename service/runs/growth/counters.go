package growth

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/insight"
)

// counters has the server's counts of rows at the last sampling, by relation.
type counters struct {
	stored map[uint32]counter
	// first means that there was no sampling before, so that earlier counts cannot be assigned to a time.
	first bool
	// reset means that all statistics were reset since the last sampling.
	reset bool
	// changed has the counters that have to be stored.
	changed []counter
	seen    map[uint32]bool
}

// counter has the rows that were inserted and deleted since the statistics of the relation were reset.
type counter struct {
	Relation          uint32
	Inserted, Deleted int64
}

// readCounters reads the stored counters. last is the time of the last sampling, or nil if there was none.
func readCounters(ctx context.Context, tx pgx.Tx, last *time.Time) (*counters, error) {
	c := &counters{stored: map[uint32]counter{}, seen: map[uint32]bool{}, first: last == nil}
	if err := tx.QueryRow(
		ctx,
		`SELECT COALESCE(pg_stat_get_db_stat_reset_time(oid) > $1, false) FROM pg_database
			WHERE datname = current_database()`,
		last,
	).Scan(&c.reset); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, "SELECT relation, inserted, deleted FROM cleanupd.table_counter")
	var one counter
	_, err := pgx.ForEachRow(rows, []any{&one.Relation, &one.Inserted, &one.Deleted}, func() error {
		c.stored[one.Relation] = one
		return nil
	})
	return c, err
}

// since returns how many rows were inserted and deleted since the last sampling. reset means that the numbers may
// be too low, because the statistics of the relation were reset in between.
func (c *counters) since(r insight.Relation) (inserted, deleted int64, reset bool) {
	before, known := c.stored[r.OID]
	c.seen[r.OID] = true
	now := counter{r.OID, r.Inserted, r.Deleted}
	if !known || before != now {
		c.changed = append(c.changed, now)
	}
	switch {
	case c.first:
		return 0, 0, false
	case !known: // the relation was created since the last sampling
		return now.Inserted, now.Deleted, false
	case c.reset, now.Inserted < before.Inserted, now.Deleted < before.Deleted:
		return now.Inserted, now.Deleted, true
	}
	return now.Inserted - before.Inserted, now.Deleted - before.Deleted, false
}

// store also deletes the counters of relations that were dropped.
func (c *counters) store(ctx context.Context, tx pgx.Tx) error {
	var (
		relations, gone   []uint32
		inserted, deleted []int64
	)
	for _, one := range c.changed {
		relations = append(relations, one.Relation)
		inserted, deleted = append(inserted, one.Inserted), append(deleted, one.Deleted)
	}
	for relation := range c.stored {
		if !c.seen[relation] {
			gone = append(gone, relation)
		}
	}
	if _, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.table_counter (relation, inserted, deleted)
			SELECT * FROM unnest($1::oid[], $2::bigint[], $3::bigint[])
		ON CONFLICT (relation) DO UPDATE SET inserted = excluded.inserted, deleted = excluded.deleted`,
		relations, inserted, deleted,
	); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM cleanupd.table_counter WHERE relation = ANY ($1::oid[])", gone)
	return err
}
