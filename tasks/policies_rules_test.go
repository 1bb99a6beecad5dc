package tasks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/policy"
)

// randomPolicy is a random policy with its conditions in SQL, which the test writes itself.
type randomPolicy struct {
	policy.Policy
	table      *randomTable
	parent     *randomTable // nil without orphan_of
	where, set []string
}

// newRandomPolicy returns a random policy for a table. Rows with the key 0 are kept if zeroRecords is true.
func newRandomPolicy(rng *rand.Rand, name string, t, parent *randomTable, zeroRecords bool) *randomPolicy {
	p := &randomPolicy{table: t}
	p.Name, p.Table, p.Enabled = name, t.spelled(rng), true
	p.Limit = choose(rng, []int{0, 1, 3, 50})
	if zeroRecords && t.key != "" {
		p.where = append(p.where, quoted(t.key)+" IS DISTINCT FROM 0")
	}
	for p.OlderThan == nil && p.OrphanOf == nil && p.KeepNewest == nil {
		if rng.IntN(2) == 0 {
			p.addAge(rng)
		}
		if rng.IntN(4) == 0 {
			p.addOrphan(rng, parent)
		}
		if rng.IntN(2) == 0 {
			p.addNewest(rng)
		}
	}
	for range choose(rng, []int{0, 0, 1, 1, 2}) {
		p.addFilter(rng)
	}
	if rng.IntN(3) == 0 {
		p.addAssignments(rng)
	}
	return p
}

func (p *randomPolicy) addAge(rng *rand.Rand) {
	c, ok := p.table.column(rng, func(c randomColumn) bool { return c.date })
	if !ok {
		return
	}
	hours := choose(rng, []int{24, 48, 90 * 24, 91 * 24, 335 * 24, 1000 * 24})
	p.OlderThan = &policy.OlderThan{Column: p.table.spelling(rng, c.name)}
	if c.read != "date" && rng.IntN(2) == 0 {
		hours = choose(rng, []int{0, 1, 36, 335*24 + 1})
		p.OlderThan.Hours = &hours
	} else {
		p.OlderThan.Days = new(hours / 24)
	}
	p.where = append(p.where,
		fmt.Sprintf("%s < timestamptz %s - interval '%d hours'", quoted(c.name),
			literal(now.Format("2006-01-02 15:04:05Z07:00")), hours))
}

func (p *randomPolicy) addOrphan(rng *rand.Rand, parent *randomTable) {
	link, ok := p.table.column(rng, func(c randomColumn) bool { return !c.plain })
	key, found := parent.column(rng, func(c randomColumn) bool {
		return c.read == link.read || (c.integer && link.integer)
	})
	if !ok || !found {
		return
	}
	p.parent = parent
	p.OrphanOf = &policy.OrphanOf{
		Column: p.table.spelling(rng, link.name), ParentTable: parent.spelled(rng),
		ParentColumn: parent.spelling(rng, key.name),
	}
	row := quoted("child", link.name)
	p.where = append(p.where,
		fmt.Sprintf(
			"%s IS NOT NULL AND EXISTS (SELECT FROM %[2]s) AND NOT EXISTS (SELECT FROM %[2]s AS parent WHERE %[3]s = %[1]s)",
			row, parent.quoted(), quoted("parent", key.name)))
	switch none := link.read; { // what applications write for no parent
	case none == "text" || none == "varchar" || none == "bpchar":
		p.where = append(p.where, row+"::text NOT IN ('', '0')")
	case none == "uuid":
		p.where = append(p.where, row+" <> '00000000-0000-0000-0000-000000000000'")
	case link.number || link.integer:
		p.where = append(p.where, row+" <> 0")
	}
}

func (p *randomPolicy) addNewest(rng *rand.Rand) {
	by, ok := p.table.column(rng, func(c randomColumn) bool { return c.date || c.number })
	if !ok {
		return
	}
	k := &policy.KeepNewest{OrderBy: p.table.spelling(rng, by.name), Count: choose(rng, []int{1, 2, 3, 10})}
	var per []string
	for range rng.IntN(4) {
		c, ok := p.table.column(rng, func(c randomColumn) bool { return !c.plain && !c.unique })
		if ok {
			k.Per, per = append(k.Per, p.table.spelling(rng, c.name)), append(per, quoted(c.name))
		}
	}
	if p.KeepNewest = k; rng.IntN(2) == 0 {
		p.table.more += fmt.Sprintf("; CREATE INDEX ON %s (%s)", p.table.quoted(),
			strings.Join(append(slices.Clone(per), quoted(by.name)), ", "))
	}
	groups := ""
	if per != nil {
		groups = "PARTITION BY " + strings.Join(per, ", ")
	}
	p.where = append(p.where, fmt.Sprintf(
		`(child.tableoid, child.ctid) IN (SELECT "the table", "the row" FROM (SELECT tableoid AS "the table", ctid AS
			"the row", rank() OVER (%s ORDER BY %[2]s DESC) AS "the place" FROM %[3]s WHERE %[2]s IS NOT NULL) AS ranked
			WHERE "the place" > %[4]d)`,
		groups, quoted(by.name), p.table.quoted(), k.Count,
	))
}

var comparisons = map[string]string{
	"EQUAL": "=", "NOT_EQUAL": "<>", "LESS": "<", "LESS_OR_EQUAL": "<=", "GREATER": ">", "GREATER_OR_EQUAL": ">=",
}

func (p *randomPolicy) addFilter(rng *rand.Rand) {
	c, ops := choose(rng, p.table.columns), []string{"IS_NULL", "IS_NOT_NULL"}
	if !c.plain {
		ops = append(ops, "EQUAL", "NOT_EQUAL", "LESS", "LESS_OR_EQUAL", "GREATER", "GREATER_OR_EQUAL", "IN", "NOT_IN")
	}
	if slices.Contains([]string{"text", "varchar", "bpchar"}, c.read) {
		ops = append(ops, "STARTS_WITH")
	}
	op := choose(rng, ops)
	f := policy.Filter{Column: p.table.spelling(rng, c.name), Op: op}
	pool := append(append([]string{}, c.values...), c.others...)
	value := func() string {
		f.Values = append(f.Values, choose(rng, pool))
		return literal(f.Values[len(f.Values)-1]) + "::" + c.read
	}
	column := quoted("child", c.name)
	var where string
	switch op {
	case "IS_NULL":
		where = column + " IS NULL"
	case "IS_NOT_NULL":
		where = column + " IS NOT NULL"
	case "STARTS_WITH":
		f.Values = []string{choose(rng, []string{"a", "0", "2025-", "{", "ä", "$1"})}
		where = fmt.Sprintf("left(%s::text, %d) = %s COLLATE \"C\"", column, len([]rune(f.Values[0])),
			literal(f.Values[0]))
	case "IN", "NOT_IN":
		var each []string
		for range 1 + rng.IntN(3) {
			each = append(each, fmt.Sprintf("%s = %s", column, value()))
		}
		if where = "(" + strings.Join(each, " OR ") + ")"; op == "NOT_IN" {
			where = "NOT " + where
		}
	default:
		where = fmt.Sprintf("%s %s %s", column, comparisons[op], value())
	}
	p.Filters, p.where = append(p.Filters, f), append(p.where, where)
}

func (p *randomPolicy) reads(name string) bool {
	is := func(spelled string) bool {
		for _, c := range p.table.columns { // as stored, or else in lower case
			if c.name == spelled {
				return c.name == name
			}
		}
		return strings.ToLower(spelled) == name
	}
	if p.OlderThan != nil && is(p.OlderThan.Column) {
		return true
	}
	if p.KeepNewest == nil {
		return false
	}
	for _, column := range append([]string{p.KeepNewest.OrderBy}, p.KeepNewest.Per...) {
		if is(column) {
			return true
		}
	}
	return false
}

func (p *randomPolicy) addAssignments(rng *rand.Rand) {
	var differ []string
	for range 1 + rng.IntN(2) {
		c, ok := p.table.column(rng, func(c randomColumn) bool { return !c.unique && !p.reads(c.name) })
		if !ok || strings.Contains(strings.Join(p.set, ", "), quoted(c.name)+" = ") {
			continue
		}
		value, new := (*string)(nil), "NULL"
		if c.notNull || rng.IntN(3) > 0 {
			given := choose(rng, c.values)
			value, new = &given, literal(given)+"::"+c.sql
			if at := strings.Index(c.sql, " COLLATE"); at > 0 {
				new = literal(given) + "::text"
			}
		}
		p.Assign = append(p.Assign, policy.Assign{Column: p.table.spelling(rng, c.name), Value: value})
		p.set = append(p.set, quoted(c.name)+" = "+new)
		differ = append(differ, fmt.Sprintf("%s::text IS DISTINCT FROM (%s)::text", quoted("child", c.name), new))
	}
	if differ != nil {
		p.where = append(p.where, "("+strings.Join(differ, " OR ")+")")
	}
}

func (p *randomPolicy) sql() string {
	statement := "DELETE FROM " + p.table.quoted() + " AS child"
	if p.set != nil {
		statement = "UPDATE " + p.table.quoted() + " AS child SET " + strings.Join(p.set, ", ")
	}
	return statement + " WHERE " + strings.Join(p.where, " AND ")
}

func (t *randomTable) queueContents(b *pgx.Batch, rows *[]string) {
	b.Queue("SELECT child::text FROM " + t.quoted() + " AS child ORDER BY 1").Query(func(found pgx.Rows) (err error) {
		*rows, err = pgx.CollectRows(found, pgx.RowTo[string])
		return err
	})
}
