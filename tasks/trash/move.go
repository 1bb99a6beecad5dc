package trash

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Tables, views and partitions go to the trash instead of being dropped. A table moves to the schema of the trash with
// its rows, indexes, owner and grants, under a name of ours; its foreign keys are dropped, since they would keep the
// application from deleting rows. Of a view only the definition is kept.

// Kind says whether an entry has rows of a relation, or a whole relation.
type Kind string

const (
	Rows      Kind = "ROWS"
	Table     Kind = "TABLE"
	Partition Kind = "PARTITION"
	View      Kind = "VIEW"
)

// relation has what it takes to recreate a dropped relation.
type relation struct {
	Schema      string `json:"schema"`
	Name        string `json:"name"`
	Partitioned bool   `json:"-"`
	// Parent is the quoted name of the partitioned table, and Bound its bound there; empty for other relations.
	Parent string `json:"parent,omitempty"`
	Bound  string `json:"bound,omitempty"`
	// Top is the quoted name of the root of the partition tree, which may be Parent.
	Top string `json:"top,omitempty"`
	// Renamed are its indexes and sequences. In the trash, each is named after the entry and its position in this list;
	// see part.
	Renamed []renamed `json:"renamed,omitempty"`
	// Inherits are the quoted names of the tables that it inherits from, through which its rows would still be read.
	Inherits []string     `json:"inherits,omitempty"`
	Keys     []constraint `json:"keys,omitempty"` // its foreign keys
	Owner    string       `json:"owner,omitempty"`
	// Query, Columns, Options and Grants are those of a view.
	Query   string   `json:"query,omitempty"`
	Columns string   `json:"columns,omitempty"`
	Options string   `json:"options,omitempty"`
	Grants  []string `json:"grants,omitempty"`
}

type renamed struct {
	Kind string `json:"kind"` // INDEX or SEQUENCE
	Name string `json:"name"`
}

type constraint struct {
	Name       string `json:"name"`
	Definition string `json:"definition"`
	OfParent   bool   `json:"of_parent,omitempty"` // the partition inherits it from its parent
}

// relationSQL selects the fields of relation for a relation $1, given by its quoted name.
const relationSQL = `
SELECT json_build_object('schema', n.nspname, 'name', c.relname,
  'parent', (SELECT format('%I.%I', pn.nspname, p.relname) FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
    JOIN pg_namespace pn ON pn.oid = p.relnamespace WHERE i.inhrelid = c.oid AND c.relispartition),
  'bound', pg_get_expr(c.relpartbound, c.oid),
  'top', (SELECT format('%I.%I', pn.nspname, p.relname) FROM pg_class p JOIN pg_namespace pn ON pn.oid = p.relnamespace
    WHERE c.relispartition AND p.oid = pg_partition_root(c.oid)),
  'inherits', (SELECT json_agg(format('%I.%I', pn.nspname, p.relname) ORDER BY i.inhseqno) FROM pg_inherits i
    JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace pn ON pn.oid = p.relnamespace
    WHERE i.inhrelid = c.oid AND NOT c.relispartition),
  'renamed', (SELECT json_agg(json_build_object('kind', kind, 'name', name) ORDER BY kind, name) FROM (
    SELECT 'INDEX' AS kind, x.relname AS name FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
      WHERE i.indrelid = c.oid
    UNION ALL SELECT 'SEQUENCE', s.relname FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
      WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.classid = 'pg_class'::regclass
        AND d.deptype IN ('a', 'i')) AS o),
  'keys', (SELECT json_agg(json_build_object('name', k.conname, 'definition', pg_get_constraintdef(k.oid),
      'of_parent', k.conparentid <> 0)
      ORDER BY k.conname) FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'f'),
  'owner', pg_get_userbyid(c.relowner),
  'query', CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END,
  'columns', CASE WHEN c.relkind = 'v' THEN (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) END,
  'options', CASE WHEN c.relkind = 'v' THEN array_to_string(c.reloptions, ', ') END,
  'grants', CASE WHEN c.relkind = 'v' THEN (SELECT json_agg(format('GRANT %s ON %I.%I TO %s%s', privilege_type,
      n.nspname, c.relname, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
      CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END))
    FROM aclexplode(c.relacl) WHERE grantee <> c.relowner)
    END)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)`

// Dropped is a relation that goes to the trash instead of being dropped.
type Dropped struct {
	Kind Kind
	Name string // quoted, with its schema
	Rows int64  // how many it has
	// ByFunction is set for a work table that the role may move only by the functions of deploy/role.sql.
	ByFunction bool
}

// Move moves a relation to the trash, in a transaction of the caller, who has checked that it may be dropped. It fails
// as a DROP without CASCADE would.
func (c *Can) Move(ctx context.Context, tx pgx.Tx, task string, keep time.Duration, d Dropped) error {
	if d.Kind != View && !d.ByFunction { // the function tries the same
		if err := wouldDrop(ctx, tx, d.Name); err != nil {
			return err
		}
	}
	var r relation
	if err := tx.QueryRow(ctx, relationSQL, d.Name).Scan(&r); err != nil {
		return err
	}
	var to string
	err := tx.QueryRow(ctx, `INSERT INTO cleanupd.trash (run_id, task, kind, root, columns, relation, keep, rows_trashed)
		VALUES ($1, $2, $3, $4, '[]', $5, $6, $7) RETURNING name`, c.Run, task, d.Kind, d.Name, r, keep,
		d.Rows).Scan(&to)
	switch {
	case err != nil:
	case d.Kind == View && d.ByFunction:
		_, err = tx.Exec(ctx, "SELECT "+campaign.DropFunction+"(ARRAY[$1::text::regclass])", d.Name)
	case d.Kind == View:
		_, err = tx.Exec(ctx, "DROP VIEW "+d.Name)
	case d.ByFunction:
		err = lent(ctx, tx, moving, quoted(r.Owner), func() error {
			_, err := tx.Exec(ctx, "SELECT "+campaign.TrashFunction+"($1::text::regclass, $2, $3)", d.Name, to, r.parts())
			return err
		})
	default:
		err = execute(ctx, tx, r.out(to))
	}
	return err
}

// lent grants the owner of a table a right, such as USAGE ON SCHEMA s, while do runs. Other sessions never see the
// right: it is granted and revoked in one transaction.
func lent(ctx context.Context, tx pgx.Tx, right, owner string, do func() error) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("GRANT %s TO %s", right, owner)); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err // the caller rolls the right back
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("REVOKE %s FROM %s", right, owner))
	return err
}

// moving is the right to move a table from or to the trash.
const moving = "USAGE, CREATE ON SCHEMA " + Schema

// parts returns the names of the table's indexes and sequences.
func (r relation) parts() (names []string) {
	for _, n := range r.Renamed {
		names = append(names, n.Name)
	}
	return names
}

// wouldDrop fails if a DROP of a table would. It locks the table as the DROP does.
func wouldDrop(ctx context.Context, tx pgx.Tx, name string) error {
	if _, err := tx.Exec(ctx, "LOCK TABLE "+name+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	trial, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := trial.Exec(ctx, "DROP TABLE "+name); err != nil {
		return err // the caller rolls everything back
	}
	return trial.Rollback(ctx)
}

func execute(ctx context.Context, tx pgx.Tx, statements []string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func quoted(names ...string) string { return pgx.Identifier(names).Sanitize() }

// part is the name of an index or sequence in the trash.
func part(table string, i int) string { return fmt.Sprintf("%s_%d", table, i+1) }

// out returns the statements that move the table to the trash, where it is named to.
func (r relation) out(to string) (sql []string) {
	from := quoted(r.Schema, r.Name)
	if r.Parent != "" {
		sql = append(sql, fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s", r.Parent, from))
	}
	for _, parent := range r.Inherits {
		sql = append(sql, fmt.Sprintf("ALTER TABLE %s NO INHERIT %s", from, parent))
	}
	for _, k := range r.Keys {
		sql = append(sql, fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", from, quoted(k.Name)))
	}
	for i, n := range r.Renamed {
		sql = append(sql, fmt.Sprintf("ALTER %s %s RENAME TO %s", n.Kind, quoted(r.Schema, n.Name), quoted(part(to, i))))
	}
	return append(sql, fmt.Sprintf("ALTER TABLE %s RENAME TO %s", from, quoted(to)),
		fmt.Sprintf("ALTER TABLE %s SET SCHEMA %s", quoted(r.Schema, to), Schema))
}

// back returns the statements that move the table back from the trash.
func (r relation) back(from string) (sql []string) {
	sql = append(sql, fmt.Sprintf("ALTER TABLE %s SET SCHEMA %s", quoted(Schema, from), quoted(r.Schema)),
		fmt.Sprintf("ALTER TABLE %s RENAME TO %s", quoted(r.Schema, from), quoted(r.Name)))
	for i, n := range r.Renamed {
		sql = append(sql, fmt.Sprintf("ALTER %s %s RENAME TO %s", n.Kind, quoted(r.Schema, part(from, i)), quoted(n.Name)))
	}
	return sql
}

// attach returns the statements that attach the table to its parents and add its foreign keys. They read its rows.
func (r relation) attach() (sql []string) {
	to := quoted(r.Schema, r.Name)
	if r.Parent != "" { // this adds the parent's foreign keys again
		sql = append(sql, fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s %s", r.Parent, to, r.Bound))
	}
	for _, parent := range r.Inherits {
		sql = append(sql, fmt.Sprintf("ALTER TABLE %s INHERIT %s", to, parent))
	}
	for _, k := range r.Keys {
		if k.OfParent {
			continue
		}
		sql = append(sql, fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s %s", to, quoted(k.Name), k.Definition))
	}
	return sql
}

// again returns the statements that recreate the view.
func (r relation) again() (sql []string) {
	name, options := quoted(r.Schema, r.Name), ""
	if r.Options != "" {
		options = fmt.Sprintf(" WITH (%s)", r.Options)
	}
	sql = append(sql, fmt.Sprintf("CREATE VIEW %s (%s)%s AS %s", name, r.Columns, options, r.Query))
	if r.Owner != "" {
		sql = append(sql, fmt.Sprintf("ALTER VIEW %s OWNER TO %s", name, quoted(r.Owner)))
	}
	return append(sql, r.Grants...)
}

// Return brings a dropped relation back, in a transaction of the caller, who counts its rows. It fails if its name is
// taken. schema is "" for its own schema. In another one, it has neither its foreign keys nor its parents, and a view
// neither its owner nor its grants. A table gets these as its owner, whose functions may be called for each row, and
// who must own the parents.
func Return(ctx context.Context, tx pgx.Tx, e Entry, schema string) error {
	var r relation
	err := tx.QueryRow(ctx, "SELECT relation FROM cleanupd.trash WHERE id = $1 FOR UPDATE", e.ID).Scan(&r)
	if err != nil {
		return err
	}
	if schema != "" {
		r.Schema, r.Parent, r.Inherits, r.Keys, r.Grants = schema, "", nil, nil, nil
		if e.Kind == View {
			r.Owner = ""
		}
	}
	var byFunction bool
	if err := tx.QueryRow(ctx, `SELECT NOT pg_has_role(c.relowner, 'USAGE') AND to_regproc($2) IS NOT NULL FROM pg_class c
		WHERE c.oid = to_regclass($1)`, e.table(), campaign.RestoreFunction).
		Scan(&byFunction); err != nil && e.Kind != View {
		return err
	}
	switch {
	case e.Kind == View:
		err = execute(ctx, tx, r.again())
	case byFunction:
		err = lent(ctx, tx, moving, quoted(r.Owner), func() error {
			_, err := tx.Exec(ctx, "SELECT "+campaign.RestoreFunction+"($1::text::regclass, $2, $3, $4)", e.table(),
				r.Schema, r.Name, r.parts())
			return err
		})
	default:
		if err = execute(ctx, tx, r.back(e.Name)); err == nil {
			err = r.attachAsOwner(ctx, tx)
		}
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE cleanupd.trash SET end_time = clock_timestamp() WHERE id = $1", e.ID)
	return err
}

func (r relation) attachAsOwner(ctx context.Context, tx pgx.Tx) error {
	sql := r.attach()
	if sql == nil {
		return nil
	}
	var owner string
	err := tx.QueryRow(ctx, `SELECT CASE WHEN o.rolname <> current_user AND NOT o.rolsuper THEN quote_ident(o.rolname)
			ELSE '' END
		FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner WHERE c.oid = to_regclass($1)`, quoted(r.Schema, r.Name)).
		Scan(&owner)
	if err != nil {
		return err
	}
	return asOwner(ctx, tx, owner, func() error { return execute(ctx, tx, sql) })
}
