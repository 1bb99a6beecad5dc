package purge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// table is the table of a sweep, read over one session.
type table struct {
	engine  *Engine
	session *session
	sweep   *Sweep
}

func (e *Engine) open(ctx context.Context, sweeps []Sweep, use func(t *table) error) error {
	session, err := e.session(ctx)
	if err != nil {
		return err
	}
	defer session.end(ctx)
	durable := *e
	durable.Durable = true // a crash must not lose what another server has committed
	for _, s := range sweeps {
		engine := e
		if s.NoTIDs {
			engine = &durable
		}
		if err := use(&table{engine, session, &s}); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

func (t *table) read(ctx context.Context, dest []any, sql string, args ...any) error {
	return t.engine.Retry(ctx, t.sweep.Name, func() error {
		return t.session.conn.QueryRow(ctx, sql, args...).Scan(dest...)
	})
}

func (t *table) query(ctx context.Context, query sqlexpr.Expr, dest ...any) error {
	sql, args := query.Build()
	return t.read(ctx, dest, sql, args...)
}

// size returns the table's size in blocks, and its filenode.
func (t *table) size(ctx context.Context) (blocks int64, filenode uint32, err error) {
	const sql = `SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint,
		pg_relation_filenode($1::text::regclass)`
	err = t.read(ctx, []any{&blocks, &filenode}, sql, t.sweep.Relation)
	return blocks, filenode, err
}

type tableInfo struct {
	instead  bool     // all rows are retained: a DO INSTEAD rule suppresses the command, or bypassed is not empty
	bypassed []string // parents with a rule or trigger that a command on the relation itself bypasses
	also     bool     // the table has a DO ALSO rule, so that the command cannot be part of a WITH query
	plain    bool     // the plain statement is sufficient
	triggers bool     // the table has triggers of the application
	fires    bool     // some of them fire for the command
	begun    int64    // the transaction id when the sweep began; read only if the table has triggers
	slow     string   // what may make each row slow; empty if nothing is known
	blocks   int64    // the table's size in blocks
	dense    float64  // how many rows per block make it worth visiting every block
	root     partitionRoot
	owner    string // the table's owner, quoted, if the statements of batches may run as that role; otherwise empty
}

// partitionRoot is the root of a partition whose updated rows may have to move to another partition.
type partitionRoot struct {
	relation  string // quoted; empty if rows do not move
	partition uint32 // the OID of the partition
}

// ruleFires and triggerFires are true for rules and triggers that fire in an ordinary session.
const (
	ruleFires    = "ev_enabled IN ('O', 'A')"
	triggerFires = "tgenabled IN ('O', 'A')"
)

// aboveSQL is a WITH query for the tables of which a relation $2 is a partition or child, at any level.
const aboveSQL = `WITH RECURSIVE above (oid) AS (SELECT inhparent FROM pg_inherits WHERE inhrelid = $2::text::regclass
  UNION SELECT i.inhparent FROM above JOIN pg_inherits i ON i.inhrelid = above.oid)`

// inspectSQL returns, for a table $1 and the relation $2 that the command names ($1 itself or its partitioned
// table): whether the relation has a DO INSTEAD or a DO ALSO rule for the command ($3, as in pg_rewrite); which
// tables above it have a rule, or a trigger of statements ($4, as in pg_trigger), that a command on the relation
// itself bypasses; whether the table has triggers, and some that fire for the command; which foreign keys without an
// index refer to it, with partitioned tables in place of their partitions; its size in blocks; how many rows per block
// make it worth visiting every block; and its owner, if that is another role which the session may become. The number
// of rows per block is two, so that few blocks have none, or half of a full block if rows are large.
const inspectSQL = aboveSQL + `
SELECT EXISTS (SELECT FROM pg_rewrite WHERE ev_class = $2::text::regclass AND ev_type::text = $3 AND is_instead
    AND ` + ruleFires + `),
  EXISTS (SELECT FROM pg_rewrite WHERE ev_class = $2::text::regclass AND ev_type::text = $3 AND NOT is_instead
    AND ev_action::text <> '<>' AND ` + ruleFires + `),
  ARRAY(SELECT above.oid::regclass::text FROM above WHERE EXISTS (SELECT FROM pg_rewrite WHERE ev_class = above.oid
      AND ev_type::text = $3 AND (is_instead OR ev_action::text <> '<>') AND ` + ruleFires + `)
    OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = above.oid AND tgtype & 1 = 0 AND tgtype & $4 <> 0
      AND NOT tgisinternal AND ` + triggerFires + `) ORDER BY 1),
  EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND ` + campaign.AppTrigger + `),
  EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgtype & $4 <> 0 AND ` + campaign.AppTrigger + `),
  ARRAY(SELECT format('%s (%s)', k.conrelid::regclass, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY u.place)
      FROM unnest(k.conkey) WITH ORDINALITY AS u (number, place) JOIN pg_attribute a ON a.attrelid = k.conrelid
        AND a.attnum = u.number))
    FROM pg_constraint k WHERE k.contype = 'f' AND k.conparentid = 0
      AND (k.confrelid = c.oid OR k.confrelid IN (SELECT pg_partition_ancestors(c.oid)))
      AND ` + sqlexpr.Enforced + ` AND NOT EXISTS (
      SELECT FROM pg_index i WHERE i.indrelid = k.conrelid AND i.indkey[0] = ANY (k.conkey) AND i.indpred IS NULL
        AND i.indisvalid)
    ORDER BY 1),
  pg_relation_size(c.oid) / current_setting('block_size')::bigint, least(2, greatest(reltuples,
    1) / greatest(relpages, 1) / 2),
  COALESCE((SELECT quote_ident(o.rolname) FROM pg_roles o WHERE o.oid = c.relowner AND NOT o.rolsuper
    AND o.rolname <> current_user AND ` + MayBecome + `), '')
FROM pg_class c WHERE c.oid = $1::text::regclass`

// MayBecome is the condition that the session may run statements as the role o.
const MayBecome = "pg_has_role(session_user, o.oid, " +
	"CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END)"

// Bits of pg_trigger.tgtype.
const (
	onDelete = 8
	onUpdate = 16
)

// inspect reads what determines how the table can be swept, and warns of foreign keys that make each deletion
// expensive. The plain statement is sufficient if there is no paired table, no companion statement, and no trigger,
// which may suppress deletions. With a paired table or a companion statement, a DO ALSO rule retains all rows, as a
// DO INSTEAD rule does.
func (t *table) inspect(ctx context.Context) (info tableInfo, err error) {
	s, command, event := t.sweep, "4", onDelete
	if s.Set != nil {
		command, event = "2", onUpdate
		if info.root, err = t.moveRoot(ctx); err != nil {
			return info, err
		}
	}
	var unindexed []string
	if err := t.read(
		ctx,
		[]any{
			&info.instead,
			&info.also,
			&info.bypassed,
			&info.triggers,
			&info.fires,
			&unindexed,
			&info.blocks,
			&info.dense,
			&info.owner,
		},
		inspectSQL, s.Relation, cmp.Or(info.root.relation, s.Relation), command, event,
	); err != nil {
		return info, err
	}
	if info.triggers {
		info.slow = "a slow trigger"
		const now = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
		if err := t.read(ctx, []any{&info.begun}, now); err != nil {
			return info, err
		}
	}
	if s.Set == nil {
		table := s.Name
		if s.Partition {
			table = s.Root // so that the recorder logs it once for all partitions
		}
		for _, key := range unindexed {
			info.slow = strings.TrimPrefix(info.slow+", and an index on "+key, ", and ")
			t.engine.Recorder.Warn(message.UnindexedForeignKey.With("table", table, "key", key))
		}
	}
	accompanied := s.Paired != nil || s.Companion != nil || s.Cascade.Circular()
	info.instead = info.instead || len(info.bypassed) > 0 || (info.also && accompanied)
	info.plain = !info.triggers && !accompanied && info.root.relation == ""
	if info.owner != "" && (accompanied || !t.ownerMay(ctx, info)) {
		info.owner = ""
	}
	if s.Trash == nil {
		return info, nil
	}
	var why string
	switch {
	case info.also: // the command cannot be part of the statement that fills the trash
		why = "has a rule DO ALSO:"
	case info.owner != "" && info.triggers:
		why = fmt.Sprintf("has triggers, so its rows are deleted as its owner %[1]s, of which the role is a member and "+
			"which has no right to the trash: REVOKE the membership in %[1]s except while rows are restored, or", info.owner)
	}
	if why != "" {
		return info, &failure.Refusal{
			Reason:   failure.ReasonNotUndoable,
			Metadata: map[string]string{"table": s.Name},
			Message:  fmt.Sprintf("%s %s run the task without undo", s.Name, why),
		}
	}
	info.owner = ""
	return info, nil
}

// CheckTrash fails with a failure.Refusal if the trash could not keep what one of the sweeps would delete, because of
// the rules, the triggers or the owner that its table has now.
func (e *Engine) CheckTrash(ctx context.Context, sweeps []Sweep) error {
	return e.open(ctx, sweeps, func(t *table) error {
		t.sweep.Trash = &Trash{}
		_, err := t.inspect(ctx)
		return err
	})
}

// ownerMay reports whether the statements of batches have the same effect when run as the table's owner: that role
// may run them, names have the same meaning to it, and row security applies to neither role.
func (t *table) ownerMay(ctx context.Context, info tableInfo) bool {
	const sight = "SELECT array_remove(current_schemas(false), 'cleanupd'), " + // the schema of $user may be cleanupd
		"COALESCE(bool_or(row_security_active(to_regclass(name))), false) FROM unnest($1::text[]) AS name"
	relations := []string{t.sweep.Relation}
	for _, f := range t.sweep.Facts {
		relations = append(relations, f.Relation)
	}
	var (
		schemas, ownSchemas []string
		hides, hidesFromOwn bool
	)
	s := &statements{sweep: t.sweep, axis: blockAxis{}, root: info.root, triggers: info.triggers}
	pick := s.pick(s.axis.window(0, 0, 1), 1, false)
	explain, args := sqlexpr.Format("EXPLAIN %s", s.onRows(ofPicked("place", pick))).Build()
	tx, err := t.session.begin(ctx, func(b *pgx.Batch) {
		b.Queue(sight, relations).QueryRow(func(row pgx.Row) error { return row.Scan(&schemas, &hides) })
		b.Queue("SET LOCAL ROLE " + info.owner)
		b.Queue(sight, relations).QueryRow(func(row pgx.Row) error { return row.Scan(&ownSchemas, &hidesFromOwn) })
		b.Queue(afterSQL, t.sweep.afterArgs()...)
		b.Queue(explain, args...)
	})
	_ = tx.Rollback(ctx)
	return err == nil && !hides && !hidesFromOwn && slices.Equal(schemas, ownSchemas)
}

// moveRootSQL returns the root of a table's partition tree, if a level of the tree above the table is partitioned
// by one of the columns $2 or by an expression.
const moveRootSQL = `
SELECT c.oid, COALESCE((SELECT format('%I.%I', n.nspname, r.relname) FROM pg_class r
  JOIN pg_namespace n ON n.oid = r.relnamespace
  WHERE r.oid = pg_partition_root(c.oid) AND EXISTS (SELECT FROM pg_partition_ancestors(c.oid) AS a
    JOIN pg_partitioned_table p ON p.partrelid = a.relid
    WHERE 0 = ANY (p.partattrs::int2[]) OR EXISTS (SELECT FROM pg_attribute k WHERE k.attrelid = a.relid
      AND k.attnum = ANY (p.partattrs::int2[]) AND k.attname = ANY ($2::text[])))), '')
FROM pg_class c WHERE c.oid = $1::text::regclass`

// moveRoot returns the partitioned table if updated rows may have to move to another partition. They move only if
// the statement names the partitioned table.
func (t *table) moveRoot(ctx context.Context) (root partitionRoot, err error) {
	if t.sweep.Set == nil || !t.sweep.Partition {
		return root, nil
	}
	var columns []string
	for _, a := range t.sweep.Set {
		columns = append(columns, a.Column)
	}
	err = t.read(ctx, []any{&root.partition, &root.relation}, moveRootSQL, t.sweep.Relation, columns)
	return root, err
}

// node is a node of a query plan, as EXPLAIN returns it.
type node struct {
	Rows  float64 `json:"Plan Rows"`
	Cost  float64 `json:"Total Cost"`
	Index string  `json:"Index Name"`
	Plans []node  `json:"Plans"`
	// Relationship is SubPlan or InitPlan for a subquery of a condition.
	Relationship string `json:"Parent Relationship"`
}

// indexes returns the indexes that the plan uses to find rows. Subqueries are left out: they may read the same table by
// other indexes.
func (n node) indexes() (names []string) {
	if n.Relationship == "SubPlan" || n.Relationship == "InitPlan" {
		return nil
	}
	if n.Index != "" {
		names = append(names, n.Index)
	}
	for _, child := range n.Plans {
		names = append(names, child.indexes()...)
	}
	return names
}

func (t *table) explain(ctx context.Context, from sqlexpr.Expr) (node, error) {
	var plans []struct{ Plan node }
	if err := t.query(ctx, sqlexpr.Format("EXPLAIN (FORMAT JSON) SELECT FROM %s", from), &plans); err != nil {
		return node{}, fmt.Errorf("explain a query of %s: %w", t.sweep.Name, err)
	}
	return plans[0].Plan, nil
}
