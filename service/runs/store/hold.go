package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var ErrNoHold = failure.New(failure.NotFound, "no such hold")

type HoldKind string

const (
	HoldDeliveries HoldKind = "DELIVERIES"
	HoldLists      HoldKind = "LISTS"
	HoldWorkflows  HoldKind = "WORKFLOWS"
	HoldTable      HoldKind = "TABLE"
	HoldRecipients HoldKind = "RECIPIENTS"
	HoldRows       HoldKind = "ROWS"
	HoldEverything HoldKind = "EVERYTHING"
)

// Hold retains rows although a rule matches them.
type Hold struct {
	ID   string
	Kind HoldKind
	// Depending on Kind, the rows on hold are those with these IDs, all rows of Schema and Table, or those with the values
	// in Rows. Relation is the table's object id.
	IDs           []int64
	Relation      uint32
	Schema, Table string
	Rows          *rules.HeldRows // nil unless Kind is HoldRows
	// NotCovered lists the tables whose rows the hold does not cover, because they refer to recipients by another column
	// than iRecipientId.
	NotCovered []string
	// RowsNow is how many rows of its table a new hold of rows has; nil if that is unknown. It is not stored.
	RowsNow *int64 `db:"-"`
	// Hidden says which tables are retained with all rows, because the role cannot follow a new hold of rows. It is not
	// stored.
	Hidden []message.Message `db:"-"`
	// Warnings say what a hold in force keeps other than what it names. They are not stored.
	Warnings    []message.Message `db:"-"`
	Reason      connection.Text
	CreatedBy   connection.Text
	CreateTime  time.Time
	ExpireTime  *time.Time // nil if it does not expire
	ReleaseTime *time.Time // nil if it was not released
	ReleasedBy  connection.Text
}

const holdColumns = "id::text, kind, ids, relation, schema_name, table_name, rows, not_covered, reason, " +
	"created_by, create_time, expire_time, release_time, released_by"

func holdApplies(at string) string {
	return "release_time IS NULL AND (expire_time IS NULL OR expire_time > " + at + ")"
}

// LockHolds makes transactions that create holds wait for each other, so that holds are numbered in the order in
// which they are committed.
func LockHolds(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'; LOCK TABLE cleanupd.hold IN SHARE ROW EXCLUSIVE MODE")
	return err
}

// CountOnHold returns how many ids the effective holds have in total, and how many of these holds are of kind HoldRows.
func CountOnHold(ctx context.Context, db campaign.Querier) (ids, ofRows int, err error) {
	err = db.QueryRow(ctx, "SELECT COALESCE(sum(cardinality(ids)), 0), count(rows) FROM cleanupd.hold WHERE "+
		holdApplies("clock_timestamp()")).Scan(&ids, &ofRows)
	return ids, ofRows, err
}

func InsertHold(ctx context.Context, tx pgx.Tx, h Hold) (*Hold, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	rows, _ := tx.Query(
		ctx,
		`INSERT INTO cleanupd.hold (id, kind, ids, relation, schema_name, table_name, rows, not_covered, reason, created_by,
			expire_time)
		VALUES (@id, @kind, @ids, @relation, @schema, @table, @rows, @not_covered, @reason, @created_by, @expire_time)
		RETURNING `+holdColumns,
		pgx.StrictNamedArgs{
			"id":          id,
			"kind":        h.Kind,
			"ids":         append([]int64{}, h.IDs...),
			"relation":    h.Relation,
			"schema":      h.Schema,
			"table":       h.Table,
			"rows":        h.Rows,
			"not_covered": append([]string{}, h.NotCovered...),
			"reason":      h.Reason,
			"created_by":  h.CreatedBy,
			"expire_time": h.ExpireTime,
		},
	)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Hold])
}

// ReleaseHold releases a hold. It returns a hold that was released before unchanged, and fails with ErrNoHold.
func ReleaseHold(ctx context.Context, tx pgx.Tx, id, by string) (*Hold, error) {
	key, err := uuid.Parse(id)
	if err != nil {
		return nil, ErrNoHold
	}
	rows, _ := tx.Query(
		ctx,
		`UPDATE cleanupd.hold SET release_time = COALESCE(release_time, clock_timestamp()), released_by = CASE
			WHEN release_time IS NULL THEN $2 ELSE released_by END
		WHERE id = $1 RETURNING `+holdColumns,
		key, connection.Text(by),
	)
	h, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Hold])
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNoHold
	}
	return h, err
}

// ListHolds returns holds, newest first, and the token of the next page, "" on the last page. If ended is true, it
// includes holds that were released or have expired. It fails with pagetoken.ErrInvalid.
func ListHolds(ctx context.Context, db campaign.Querier, ended bool, size int, token string) ([]Hold, string, error) {
	before, err := pagetoken.ParseNumber(token)
	if err != nil {
		return nil, "", err
	}
	rows, _ := db.Query(
		ctx,
		"SELECT "+holdColumns+", number FROM cleanupd.hold WHERE ($1 OR "+holdApplies("clock_timestamp()")+`)
		AND ($2 = 0 OR number < $2) ORDER BY number DESC LIMIT $3`,
		ended, before, size+1,
	)
	type numbered struct {
		Hold
		Number int64
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[numbered])
	if err != nil {
		return nil, "", err
	}
	list, next := pagetoken.Cut(list, size, func(h numbered) int64 { return h.Number })
	var holds []Hold
	for _, h := range list {
		holds = append(holds, h.Hold)
	}
	return holds, next, nil
}

// selectEffective also reads the current names of the relation and the columns of a hold, NULL for columns that were
// dropped, and the object id of another relation that has the stored name now.
const selectEffective = `
SELECT last, id::text, reason, kind, ids, COALESCE(relation, 0), COALESCE(schema_name, ''), COALESCE(table_name, ''),
  rows, COALESCE(now.schema, ''), COALESCE(now.name, ''), COALESCE(namesake.oid, 0),
  ARRAY(SELECT a.attname
    FROM jsonb_array_elements(rows -> 'columns') WITH ORDINALITY AS held (of, place)
      LEFT JOIN pg_attribute a ON a.attrelid = relation AND a.attnum = (held.of ->> 'number')::int
        AND NOT a.attisdropped
    ORDER BY held.place)
FROM (SELECT COALESCE(max(number), 0) AS last FROM cleanupd.hold) AS created
  LEFT JOIN cleanupd.hold ON %s
  LEFT JOIN LATERAL (
    SELECT n.nspname::text AS schema, c.relname::text AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = relation AND c.relkind IN ('r', 'p', 'f', 'v', 'm')) AS now ON true
  LEFT JOIN LATERAL (
    SELECT c.oid FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
    WHERE n.nspname = schema_name AND c.relname = table_name AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
      AND c.oid <> relation
    OFFSET 0 -- uses the indexes instead of joining all of pg_class
  ) AS namesake ON true
ORDER BY number`

// EffectiveHolds merges the holds that apply at the given time. last is the number of the newest hold, whether or not
// it applies; 0 if none exists.
func EffectiveHolds(ctx context.Context, db campaign.Querier, at time.Time) (all rules.Holds, last int64, err error) {
	list, last, err := ListEffectiveHolds(ctx, db, at)
	for _, h := range list {
		all.Add(h.Holds)
	}
	return all, last, err
}

// ListEffectiveHolds is like EffectiveHolds, but returns the holds one by one.
func ListEffectiveHolds(
	ctx context.Context, db campaign.Querier, at time.Time,
) (list []rules.Hold, last int64, err error) {
	rows, _ := db.Query(ctx, fmt.Sprintf(selectEffective, holdApplies("$1")), at)
	var (
		id, reason, kind *string
		ids              []int64
		table            rules.HeldTable
		held             *rules.HeldRows
		namesake         uint32
		columns          []*string
	)
	scan := []any{
		&last, &id, &reason, &kind, &ids, &table.OID, &table.Schema, &table.Name, &held, &table.NowSchema, &table.NowName,
		&namesake, &columns,
	}
	_, err = pgx.ForEachRow(rows, scan, func() error {
		if kind == nil {
			return nil
		}
		h := rules.Hold{ID: *id, Reason: *reason, Holds: rules.Holds{Names: []string{*id}}}
		switch HoldKind(*kind) {
		case HoldDeliveries:
			h.Deliveries = slices.Clone(ids)
		case HoldLists:
			h.Lists = slices.Clone(ids)
		case HoldWorkflows:
			h.Workflows = slices.Clone(ids)
		case HoldRecipients:
			h.Recipients = slices.Clone(ids)
		case HoldTable:
			table.Replaced = namesake != 0
			h.Tables = append(h.Tables, table)
		case HoldRows:
			if table.NowName != "" {
				now := rules.HeldRows{OID: table.OID, Table: campaign.FullName(table.NowSchema, table.NowName)}
				for i, c := range held.Columns {
					if c.Gone = columns[i] == nil; !c.Gone {
						c.Column = *columns[i]
					}
					now.Columns = append(now.Columns, c)
				}
				h.Rows = append(h.Rows, now)
			}
			if namesake != 0 {
				held.OID, held.Instead = namesake, table.Became()
			}
			if table.NowName == "" || namesake != 0 {
				h.Rows = append(h.Rows, *held)
			}
		default: // a hold of a kind unknown to this version holds everything
			h.Everything = true
		}
		list = append(list, h)
		return nil
	})
	return list, last, err
}

// DeletingRuns returns the running and paused runs, except dry runs. If task is not "", it returns only those that are
// executing this task.
func DeletingRuns(ctx context.Context, db campaign.Querier, task string) ([]uuid.UUID, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT id FROM cleanupd.run r WHERE state IN ('RUNNING', 'PAUSED') AND NOT dry_run AND ($1 = ''
			OR EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = r.id AND t.name = $1 AND t.state = 'RUNNING'))`,
		task,
	)
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}
