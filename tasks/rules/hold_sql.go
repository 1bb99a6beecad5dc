package rules

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// HoldCondition is a condition under which a row r of a table is on hold.
type HoldCondition struct {
	Condition sqlexpr.Expr
	// ReadsOthers is set if Condition reads other tables, ReadsRemote if rows of one of them are on other servers, and
	// ReadsDistributed if that one is distributed.
	ReadsOthers, ReadsRemote, ReadsDistributed bool
	// Column is an integer column of r, or empty. If it is set, Condition is true if the column contains one of the ids
	// All or, if that is nil, one of those that the query IDs returns.
	Column string
	All    []int64
	IDs    sqlexpr.Expr
	// Lookup is Condition for statements that delete rows: for each of them it looks up the rows of other tables by
	// indexes. It is empty if it would have to read whole tables that deleting the rows would not read.
	Lookup sqlexpr.Expr
}

// holdFinder finds the conditions under which rows of a table are on hold. It adds notes and missing rights to the
// plan.
type holdFinder struct {
	env    Env
	plan   *Plan
	table  *campaign.Table
	linker holdLinker
}

// findOnHold returns the conditions under which a row r is on hold: itself, through a row with its id in a paired
// table, because it refers to a row in HeldRows, or, unless others stay as they are, through a row that a foreign key
// deletes or changes with it. If the table of HeldRows no longer exists, every row is on hold.
func findOnHold(env Env, p *Plan, table *campaign.Table, othersStay bool) ([]HoldCondition, error) {
	p.noteNamesakes(env, table)
	switch {
	case len(env.Holds.Names) == 0:
		return nil, nil
	case holdLinker{env: env}.links(table).whole:
		return []HoldCondition{{Condition: sqlexpr.SQL("true")}}, nil
	case p.lost(env, table):
		return []HoldCondition{{Condition: sqlexpr.SQL("true")}}, nil
	}
	linker, err := newHoldLinker(env)
	if err != nil {
		return nil, err
	}
	f := holdFinder{env, p, table, linker}
	found := f.byColumns()
	paired, err := f.byPairedRows()
	found = slices.Concat(found, f.byForeignKeys(), paired)
	if !othersStay {
		found = append(found, f.byCascades()...)
	}
	return slices.DeleteFunc(found, func(h HoldCondition) bool { return h.Condition.IsZero() }), err
}

// rowOnHold is the condition that a row r, or a row that would be deleted with it, is on hold. It is empty if none can
// be.
func rowOnHold(env Env, p *Plan, table *campaign.Table) (condition sqlexpr.Expr, err error) {
	found, err := findOnHold(env, p, table, false)
	for _, h := range found {
		condition = sqlexpr.Or(condition, h.Condition)
	}
	return condition, err
}

// byColumns returns the conditions under which r itself is on hold: by its partition, by an id, by HeldRows, or by its
// message, whose delivery is on hold. There is one condition for each log of messages.
func (f holdFinder) byColumns() (found []HoldCondition) {
	own := f.linker.links(f.table)
	for _, leaf := range own.leaves {
		found = append(found, HoldCondition{Condition: sqlexpr.Format("r.tableoid = %d", leaf)})
	}
	for _, l := range own.columns {
		condition := l.of("r")
		if !l.integer {
			found = append(found, HoldCondition{Condition: condition})
			continue
		}
		found = append(found, HoldCondition{
			Condition: condition,
			Column:    l.column,
			All:       l.ids,
		})
	}
	for _, h := range own.rows {
		found = append(found, HoldCondition{Condition: h.condition(&f.newCompiler().sql, row{"r", f.table})})
	}
	for _, l := range own.messages {
		for _, log := range messageLogs(f.env, f.plan) {
			onHold := func(*holdCompiler) sqlexpr.Expr { return sqlexpr.OneOf("l.iDeliveryId", l.ids) }
			found = append(found, f.through(l.column, row{"l", log}, "iBroadLogId", nil, onHold))
		}
	}
	return found
}

func (f holdFinder) newCompiler() *holdCompiler {
	return &holdCompiler{sql: compiler{env: f.env, plan: f.plan, table: f.table}, linker: f.linker}
}

// lookup compiles a condition that looks up the rows of other tables; it is empty if there is none.
func (f holdFinder) lookup(compile func(c *holdCompiler) sqlexpr.Expr) sqlexpr.Expr {
	f.plan = &Plan{Task: f.plan.Task} // which has the notes and rights of the same condition already
	c := f.newCompiler()
	c.lookups = true
	if condition := compile(c); !c.scans && !c.sql.remote && !c.sql.cannotJoin() {
		return condition
	}
	return sqlexpr.Expr{}
}

// through is the condition that a column of r contains the key of a row of another table that is on hold, as compiled
// by onHold; k is the foreign key by which that row goes with r, nil if there is none. The condition is empty if no
// such row can be on hold, and true for all rows if that table might hide rows.
func (f holdFinder) through(
	column string, other row, key string, k *campaign.Cascade, onHold func(c *holdCompiler) sqlexpr.Expr,
) HoldCondition {
	c := f.newCompiler()
	where := onHold(c)
	if where.IsZero() {
		return HoldCondition{}
	}
	if c.sql.hidesRows(other.table) {
		return HoldCondition{Condition: sqlexpr.SQL("true")}
	}
	c.sql.recordRead(other.table)
	query := sqlexpr.Format("SELECT DISTINCT %s.%s::bigint FROM %s AS %[1]s WHERE %[1]s.%[2]s IS NOT NULL AND (%[4]s)",
		other.alias, key, other.table.Quoted(), where)
	exists := func(c *holdCompiler, where sqlexpr.Expr) sqlexpr.Expr {
		if k == nil || c.sql.cannotJoin() {
			return c.among("r."+column, other, key, where)
		}
		return c.exists(other, k.On("r", other.alias), k.Indexed && k.Whole, where)
	}
	return HoldCondition{
		Condition:        exists(c, where),
		ReadsOthers:      true,
		ReadsRemote:      c.sql.remote,
		ReadsDistributed: c.sql.distributed,
		Column:           column,
		IDs:              query,
		Lookup:           f.lookup(func(c *holdCompiler) sqlexpr.Expr { return exists(c, onHold(c)) }),
	}
}

// byForeignKeys returns the conditions that r refers to a row in HeldRows, or to one that is on hold with them.
func (f holdFinder) byForeignKeys() (found []HoldCondition) {
	for _, k := range f.linker.referring(f.table) {
		c := f.newCompiler()
		condition, ids := c.belongs(row{"r", f.table}, k)
		h := HoldCondition{Condition: condition, ReadsOthers: true, ReadsDistributed: c.sql.distributed}
		if !ids.IsZero() {
			h.Column, h.IDs, h.ReadsRemote = k.Columns[0], ids, c.sql.remote
			h.Lookup = f.lookup(func(c *holdCompiler) sqlexpr.Expr { return c.refersToHeld(row{"r", f.table}, k) })
		}
		found = append(found, h)
	}
	return found
}

// byPairedRows returns the conditions that a row of a paired table with the same id is on hold.
func (f holdFinder) byPairedRows() (found []HoldCondition, err error) {
	for _, t := range f.env.Pipeline {
		for _, step := range t.Steps {
			if step.Paired == nil {
				continue
			}
			paired, err := f.byPairedStep(step)
			if err != nil {
				return nil, err
			}
			found = append(found, paired...)
		}
	}
	return found, nil
}

func (f holdFinder) byPairedStep(step Step) (found []HoldCondition, err error) {
	skipped := &Plan{}
	logs, err := step.On(f.env, skipped)
	logs = slices.Concat(logs, skipped.SkippedTables) // a log that is not cleaned may also have rows on hold
	paired, key, id := f.env.Catalog.Table(step.Paired.Table), step.Paired.Key, step.Paired.ID
	if err != nil || paired == nil || !paired.Has(key) || (paired != f.table && !slices.Contains(logs, f.table)) {
		return nil, err
	}
	f.plan.requireMappings(f.env)
	logs = slices.DeleteFunc(logs, func(log *campaign.Table) bool { return !log.Has(id) })
	path := []*campaign.Table{f.table}
	if paired == f.table {
		for _, log := range logs {
			onHold := func(c *holdCompiler) sqlexpr.Expr { return c.withChildren(row{"l", log}, nil, path) }
			found = append(found, f.through(key, row{"l", log}, id, nil, onHold))
		}
		return found, nil
	}
	return []HoldCondition{f.through(id, row{"t", paired}, key, nil, func(c *holdCompiler) sqlexpr.Expr {
		sides := []sqlexpr.Expr{c.withChildren(row{"t", paired}, nil, path)}
		for _, log := range logs {
			if log == f.table { // the row of this table with the same id is r
				continue
			}
			switch where := c.withChildren(row{"l", log}, nil, path); {
			case where.IsZero():
			case c.sql.hidesRows(log):
				return sqlexpr.SQL("true")
			default:
				c.sql.recordRead(log)
				sides = append(sides, c.among("t."+key, row{"l", log}, id, where))
			}
		}
		return sqlexpr.Or(sides...)
	})}, nil
}

// byCascades returns the conditions that a row that a foreign key deletes or changes with r is on hold.
func (f holdFinder) byCascades() (found []HoldCondition) {
	path := []*campaign.Table{f.table}
	for _, k := range f.table.Cascades {
		switch {
		case !f.linker.mayLink(k, map[*campaign.Cascade]bool{}):
		case !f.plan.seesRowsOnHold(f.env, f.table, k.Table):
			found = append(found, HoldCondition{Condition: sqlexpr.SQL("true")})
		case len(k.Keys) == 1 && f.table.HasInteger(k.Keys[0]) && k.Table.HasInteger(k.Columns[0]):
			child := row{"k1", k.Table}
			onHold := func(c *holdCompiler) sqlexpr.Expr { return c.withChildren(child, k, path) }
			found = append(found, f.through(k.Keys[0], child, k.Columns[0], k, onHold))
		default:
			c := f.newCompiler()
			where := c.child(row{"r", f.table}, k, path)
			found = append(found,
				HoldCondition{Condition: where, ReadsOthers: true, ReadsDistributed: c.sql.distributed})
		}
	}
	return found
}

// These limit following foreign keys from one row: the number of keys, and how often one table is visited. Rows
// behind further keys count as on hold.
const (
	maxCascades = 100
	maxVisits   = 3
)

type holdCompiler struct {
	sql      compiler
	linker   holdLinker
	cascades int // foreign keys followed so far
	// lookups is set for a HoldCondition.Lookup; scans is set if it would have to read whole tables.
	lookups, scans bool
}

// exists is the condition that another table has a row, by two conditions: on, by which an index finds it if indexed is
// set, and where. OFFSET 0 keeps the planner from reading the whole table once a statement instead.
func (c *holdCompiler) exists(other row, on string, indexed bool, where sqlexpr.Expr) sqlexpr.Expr {
	offset := ""
	if c.lookups && indexed {
		offset = " OFFSET 0"
	}
	return sqlexpr.Format("EXISTS (SELECT FROM %s AS %s WHERE %s AND (%s)%s)", other.table.Quoted(), other.alias, on,
		where, offset)
}

// among is the condition that a column contains the key of one of the rows of another table.
func (c *holdCompiler) among(column string, other row, key string, where sqlexpr.Expr) sqlexpr.Expr {
	if c.lookups && other.table.IsKey(key) {
		return c.exists(other, fmt.Sprintf("%s.%s = %s", other.alias, key, column), true, where)
	}
	c.scans = true
	return sqlexpr.Format("%s IN (SELECT %s.%s FROM %s AS %[2]s WHERE %[5]s)", column, other.alias, key,
		other.table.Quoted(), where)
}

// row is the condition that a row is on hold because of its columns or its partition. It is empty if no row of the
// table can be.
func (c *holdCompiler) row(r row) sqlexpr.Expr {
	own := c.linker.links(r.table)
	if own.whole {
		return sqlexpr.SQL("true")
	}
	var sides []sqlexpr.Expr
	for _, leaf := range own.leaves {
		sides = append(sides, sqlexpr.Format("%s.tableoid = %d", r.alias, leaf))
	}
	for _, l := range own.columns {
		sides = append(sides, l.of(r.alias))
	}
	for _, h := range own.rows {
		sides = append(sides, h.condition(&c.sql, r))
	}
	for _, l := range own.messages {
		for _, log := range messageLogs(c.sql.env, c.sql.plan) {
			if c.sql.hidesRows(log) {
				return sqlexpr.SQL("true")
			}
			c.sql.recordRead(log)
			sides = append(sides, c.among(r.alias+"."+l.column, row{"m", log}, "iBroadLogId",
				sqlexpr.OneOf("m.iDeliveryId", l.ids)))
		}
	}
	return sqlexpr.Or(sides...)
}

// withChildren is the condition that a row, or a row that foreign keys delete with it, is on hold. It is empty if none
// can be. path has the tables through which foreign keys were followed; arrived is the key that led to the row, nil for
// the first one. A hold on the row to which arrived refers does not count here, since it counts for that row.
func (c *holdCompiler) withChildren(r row, arrived *campaign.Cascade, path []*campaign.Table) sqlexpr.Expr {
	visits := 1
	for _, t := range path {
		if t == r.table {
			visits++
		}
	}
	if c.cascades++; c.cascades > maxCascades || visits == maxVisits {
		if c.sql.env.HoldsWithinReach {
			return sqlexpr.Expr{}
		}
		schema := c.sql.env.Catalog.Schema
		c.sql.plan.note(message.HoldTooDeep.With("table", path[0].NameIn(schema), "last", r.table.NameIn(schema)))
		return sqlexpr.SQL("true")
	}
	sides := []sqlexpr.Expr{c.row(r)}
	for _, k := range c.linker.referring(r.table) {
		if k != arrived {
			condition, _ := c.belongs(r, k)
			sides = append(sides, condition)
		}
	}
	for _, k := range r.table.Cascades {
		isCleared := arrived != nil && arrived.Action == campaign.Clears && !slices.ContainsFunc(k.Keys,
			func(key string) bool { return slices.Contains(arrived.Columns, key) })
		if !isCleared { // a row that stays, with the columns to which k refers, keeps those that refer to it as they are
			sides = append(sides, c.child(r, k, append(slices.Clone(path), r.table)))
		}
	}
	return sqlexpr.Or(sides...)
}

// child is the condition that a row on hold refers to the row by a foreign key. It is empty if none can be.
func (c *holdCompiler) child(r row, k *campaign.Cascade, path []*campaign.Table) sqlexpr.Expr {
	child := row{fmt.Sprint("k", len(path)), k.Table}
	if !c.linker.mayLink(k, map[*campaign.Cascade]bool{}) {
		return sqlexpr.Expr{}
	}
	if !c.sql.plan.seesRowsOnHold(c.sql.env, r.table, k.Table) {
		return sqlexpr.SQL("true")
	}
	onHold := c.withChildren(child, k, path)
	if onHold.IsZero() {
		return onHold
	}
	c.sql.recordRead(k.Table)
	// without an index, PostgreSQL scans the table for each row of the parent that it deletes, so one more scan is cheap
	return c.exists(child, k.On(r.alias, child.alias), k.Indexed && k.Whole, onHold)
}

// seesRowsOnHold reports whether the role can read all rows of the child table that may be on hold. If not, it
// notes that rows of the parent table are retained.
func (p *Plan) seesRowsOnHold(env Env, parent, child *campaign.Table) bool {
	if env.AllRights {
		p.requireRights(env, child, "SELECT")
		return true
	}
	if child.CanSelect && !child.RowSecurity {
		return true
	}
	grants, _ := missing(env, child.Schema, child.Quoted(), child.Rights, []string{"SELECT"})
	remedy := strings.Join(grants, "; ")
	if child.CanSelect {
		remedy = fmt.Sprintf("ALTER ROLE %s BYPASSRLS", pgx.Identifier{env.Catalog.Role}.Sanitize())
	}
	schema := env.Catalog.Schema
	p.note(message.HoldHidden.With("table", parent.NameIn(schema), "child", child.NameIn(schema), "statement", remedy))
	return false
}

// HeldRows are the rows of a table that have the given values in all given columns. They are on hold together with the
// rows that refer to them by foreign keys, directly or through other rows.
type HeldRows struct {
	// OID is the table's, and Table its full name.
	OID     uint32       `json:"-"`
	Table   string       `json:"table"`
	Columns []HeldColumn `json:"columns"`
	// Instead says what became of the hold's table, if another table has its name now; otherwise it is empty.
	Instead string `json:"-"`
}

type HeldColumn struct {
	Number int16  `json:"number"` // in the table
	Column string `json:"column"` // as stored
	// Type is the type of the column when the hold was created.
	Type  string `json:"type"`
	Value string `json:"value"`
	// Gone is whether the column was dropped, also if the table has another one of its name now.
	Gone bool `json:"-"`
}

// TablesOfRows returns the tables that have rows on hold.
func (h Holds) TablesOfRows() (names []string) {
	for _, rows := range h.Rows {
		names = append(names, rows.Table)
	}
	return names
}

// isLost reports whether their table no longer exists, given the one that has its name now, or nil.
func (h HeldRows) isLost(now *campaign.Table) bool { return now == nil || now.OID != h.OID }

// changed returns why the rows can no longer be found in a table; empty if they can.
func (h HeldRows) changed(t *campaign.Table) string {
	for _, c := range h.Columns {
		switch column, ok := t.Column(c.Column); {
		case c.Gone || !ok:
			return fmt.Sprintf("its column %s no longer exists", c.Column)
		case column.Type != c.Type:
			return fmt.Sprintf("its column %s now has the type %s, not %s", c.Column, column.Type, c.Type)
		}
	}
	return ""
}

// condition is the condition that a row is one of the rows on hold. It is true if this cannot be determined.
func (h HeldRows) condition(c *compiler, r row) sqlexpr.Expr {
	held := c.env.Catalog.Table(h.Table)
	if h.Instead != "" {
		c.plan.noteUnusable(c.env, c.table, h.Table, h.Instead)
	}
	if why := h.changed(held); why != "" {
		c.plan.noteUnusable(c.env, c.table, h.Table, why)
		return sqlexpr.SQL("true")
	}
	if slices.ContainsFunc(h.Columns, func(c HeldColumn) bool { return !r.table.Has(c.Column) }) {
		return sqlexpr.SQL("true") // a table that another one inherits from
	}
	return h.equal(held, r.alias)
}

// equal is the condition that a row of the hold's table has the values.
func (h HeldRows) equal(held *campaign.Table, alias string) sqlexpr.Expr {
	var equal []sqlexpr.Expr
	for _, column := range h.Columns {
		of, _ := held.Column(column.Column)
		equal = append(equal, sqlexpr.Format("%s.%s %s %s", alias, pgx.Identifier{of.Name}.Sanitize(), of.Operator("="),
			typed(column.Value, of.Type)))
	}
	return sqlexpr.Format("(%s)", sqlexpr.Join(" AND ", equal...))
}

// Count counts the rows of the hold's table that have the values, up to a limit.
func (h HeldRows) Count(
	ctx context.Context, db campaign.Querier, held *campaign.Table, limit int,
) (n int64, err error) {
	query := sqlexpr.Format("SELECT count(*) FROM (SELECT FROM %s AS r WHERE %s LIMIT %s) AS held",
		held.Quoted(), h.equal(held, "r"), strconv.Itoa(limit))
	return n, query.QueryRow(ctx, db).Scan(&n)
}

func (p *Plan) noteUnusable(env Env, t *campaign.Table, held, why string) {
	p.note(message.HoldUnusable.With("table", t.NameIn(env.Catalog.Schema), "held", held, "problem", why))
}

// lost reports whether a table of HeldRows no longer exists. It then notes that all rows of t are retained, since any
// of them might belong to the lost rows.
func (p *Plan) lost(env Env, t *campaign.Table) bool {
	for _, h := range env.Holds.Rows {
		if h.isLost(env.Catalog.Table(h.Table)) {
			p.noteUnusable(env, t, h.Table, "the table no longer exists")
			return true
		}
	}
	return false
}

// matching returns the rows on hold that may be in a table: its own, and those of tables that inherit from it or
// from which it inherits.
func (h Holds) matching(c *campaign.Catalog, t *campaign.Table) (rows []HeldRows) {
	has := func(t, part *campaign.Table) bool {
		return slices.ContainsFunc(t.Leaves, func(leaf campaign.Leaf) bool { return leaf.OID == part.OID })
	}
	for _, held := range h.Rows {
		if of := c.Table(held.Table); of != nil && (of == t || has(of, t) || has(t, of)) {
			rows = append(rows, held)
		}
	}
	return rows
}

// mayBelong reports whether a row of the table can be one of the rows on hold, or refer to one by foreign keys.
// Tables in visited are skipped.
func (l holdLinker) mayBelong(t *campaign.Table, visited map[*campaign.Table]bool) bool {
	if visited[t] || len(l.env.Holds.Rows) == 0 {
		return false
	}
	visited[t] = true
	return len(l.env.Holds.matching(l.env.Catalog, t)) > 0 ||
		slices.ContainsFunc(slices.Concat(t.ForeignKeys, t.ChildKeys),
			func(k *campaign.Cascade) bool { return l.mayBelong(k.Parent, visited) })
}

// referring returns the foreign keys by which a row of the table may refer to a row on hold.
func (l holdLinker) referring(t *campaign.Table) (keys []*campaign.Cascade) {
	for _, k := range t.ForeignKeys {
		if l.mayBelong(k.Parent, map[*campaign.Table]bool{}) {
			keys = append(keys, k)
		}
	}
	return keys
}

// heldKeys is a WITH clause for the keys, as arrays of texts, of rows that are on hold by HeldRows; number 0 has those
// to which k refers. It begins with HeldRows and adds the rows that refer to rows found before, each row once, so that
// keys may lead in a circle. ok is false if the role cannot see all of these rows.
func (c *holdCompiler) heldKeys(k *campaign.Cascade) (query sqlexpr.Expr, ok bool) {
	followed := []*campaign.Cascade{k} // keys that refer to the same columns are followed once
	number := func(k *campaign.Cascade) int {
		is := func(other *campaign.Cascade) bool {
			return other.Parent == k.Parent && slices.Equal(other.Keys, k.Keys)
		}
		if !slices.ContainsFunc(followed, is) {
			followed = append(followed, k)
		}
		return slices.IndexFunc(followed, is)
	}
	var first, next []sqlexpr.Expr
	for i := 0; i < len(followed); i++ {
		t := followed[i].Parent
		if !c.sql.plan.seesRowsOnHold(c.sql.env, c.sql.table, t) {
			return query, false
		}
		c.sql.recordRead(t)
		var texts []string
		for _, key := range followed[i].Keys {
			texts = append(texts, fmt.Sprintf(`t.%s::text COLLATE "C"`, key))
		}
		rows := fmt.Sprintf("SELECT %d, ARRAY[%s] FROM %s AS t", i, strings.Join(texts, ", "), t.Quoted())
		for _, h := range c.sql.env.Holds.matching(c.sql.env.Catalog, t) {
			first = append(first, sqlexpr.Format("%s WHERE %s", rows, h.condition(&c.sql, row{"t", t})))
		}
		for _, up := range c.linker.referring(t) {
			next = append(next, sqlexpr.Format("%s WHERE held.number = %d AND %s", rows, number(up), refers(up, "held", "t")))
		}
	}
	query = sqlexpr.Join(" UNION ", first...)
	if next != nil {
		query = sqlexpr.Format("%s UNION SELECT next.* FROM held, LATERAL (%s) AS next", query,
			sqlexpr.Join(" UNION ALL ", next...))
	}
	return sqlexpr.Format("WITH RECURSIVE held (number, key) AS (%s)", query), true
}

// refers is the condition that a row refers to a row of heldKeys by a foreign key.
func refers(k *campaign.Cascade, held, alias string) string {
	var on []string
	for i, column := range k.Columns {
		on = append(on, k.Equal[i].Of(fmt.Sprintf("(%s.key[%d]::%s)", held, i+1, k.Equal[i].Type), alias+"."+column))
	}
	return strings.Join(on, " AND ")
}

// belongs is the condition that a row refers, by a foreign key, to a row in HeldRows, or to one that is on hold with
// them. If the key is an integer, ids is a query for the ids of such rows.
func (c *holdCompiler) belongs(r row, k *campaign.Cascade) (condition, ids sqlexpr.Expr) {
	if c.lookups {
		return c.refersToHeld(r, k), ids
	}
	keys, ok := c.heldKeys(k)
	switch {
	case !ok:
		return sqlexpr.SQL("true"), ids
	case k.Table != r.table: // a partition or child
		var leaves []string
		for _, leaf := range k.Table.Leaves {
			if leaf.Location != "" { // its rows have another tableoid on their server
				return sqlexpr.SQL("true"), ids
			}
			leaves = append(leaves, fmt.Sprint(leaf.OID))
		}
		return sqlexpr.Format("%s.tableoid IN (%s) AND EXISTS (%s SELECT FROM held WHERE number = 0 AND %s)", r.alias,
			strings.Join(leaves, ", "), keys, refers(k, "held", r.alias)), ids
	case len(k.Keys) == 1 && r.table.HasInteger(k.Columns[0]) && k.Parent.HasInteger(k.Keys[0]):
		ids = sqlexpr.Format("%s SELECT DISTINCT key[1]::bigint FROM held WHERE number = 0 AND key[1] IS NOT NULL", keys)
		return sqlexpr.Format("%s.%s IN (%s)", r.alias, k.Columns[0], ids), ids
	}
	return sqlexpr.Format("EXISTS (%s SELECT FROM held WHERE number = 0 AND %s)", keys, refers(k, "held", r.alias)), ids
}

// refersToHeld is the condition of belongs as a lookup: from the row to the one to which it refers, and further. Keys
// that lead in a circle cannot be followed in this way.
func (c *holdCompiler) refersToHeld(r row, k *campaign.Cascade, path ...*campaign.Cascade) sqlexpr.Expr {
	c.cascades++
	if c.cascades > maxCascades || k.Table != r.table || slices.Contains(path, k) {
		c.scans = true
		return sqlexpr.Expr{}
	}
	path = append(slices.Clone(path), k)
	parent := row{fmt.Sprint("h", len(path)), k.Parent}
	if !c.sql.plan.seesRowsOnHold(c.sql.env, c.sql.table, parent.table) {
		return sqlexpr.SQL("true")
	}
	c.sql.recordRead(parent.table)
	var sides []sqlexpr.Expr
	for _, h := range c.sql.env.Holds.matching(c.sql.env.Catalog, parent.table) {
		sides = append(sides, h.condition(&c.sql, parent))
	}
	for _, up := range c.linker.referring(parent.table) {
		sides = append(sides, c.refersToHeld(parent, up, path...))
	}
	return c.exists(parent, k.On(parent.alias, r.alias), k.Whole, sqlexpr.Or(sides...))
}
