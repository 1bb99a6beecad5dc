package execute

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Action is what a task would do to a table.
type Action string

// Actions.
const (
	Delete Action = "DELETE"
	Update Action = "UPDATE"
	Drop   Action = "DROP"
)

// TablePreview is what a task would do to a table, or to its work tables.
type TablePreview struct {
	// Table is its quoted name with the schema; of work tables the mask of their names.
	Table  string `json:"Table"`
	Action Action `json:"Action"`
	// Rows is how many rows would be deleted or updated.
	Rows int64 `json:"Rows"`
	// RowsTotal is how many it has, and Bytes how large those are that go: estimates.
	RowsTotal int64 `json:"RowsTotal,omitempty"`
	Bytes     int64 `json:"Bytes,omitempty"`
	// Tables is how many would be dropped, Names are some of them.
	Tables int64    `json:"Tables,omitempty"`
	Names  []string `json:"Names,omitempty"`
	// Oldest and Newest are among the dates of the rows that go; nil: the rule goes by none.
	Oldest *time.Time `json:"Oldest,omitempty"`
	Newest *time.Time `json:"Newest,omitempty"`
	// Sample is the keys of some of them.
	Sample []int64 `json:"Sample,omitempty"`
	// Rule says in words why they go.
	Rule string `json:"Rule,omitempty"`
	// RowsNow is how many rows, or tables, it would be by the options as they are stored; nil: these are.
	RowsNow *int64 `json:"RowsNow,omitempty"`
	// Guards are those that would trip.
	Guards []Trip `json:"Guards,omitempty"`
	// Remarks say what is not known before it is done.
	Remarks []string `json:"Remarks,omitempty"`

	of        *campaign.Table // nil: work tables
	relations []string        // that the rows are in
	dropped   []string        // all names, quoted
}

// namesShown is how many names of tables a preview has.
const namesShown = 20

// preview is what a dry run knows of what its tasks would do, beyond the one at work: a row counts at the first task
// that deletes it, and what one task changes is seen by the next.
type preview struct {
	chosen []plan.Task
	// blind says that rows are not counted: only the sets are of interest.
	blind bool
	// sets are those of tasks, by their names: of those that are done what they would have deleted or updated.
	sets map[string][]int64
	// worked are those with what belongs to them, some of which may stay themselves.
	worked map[string][]int64
	// begun are those that tasks began with, of which some may stay.
	begun map[string][]int64
	// void are the tasks that would do nothing, since they failed or were not run.
	void map[string]bool
	// coalesced is from when on tasks would have coalesced rows.
	coalesced map[string]time.Time
	// tallies are what was found of jobs, some before their tasks have begun.
	tallies map[string]purge.Tally
	// dropped are the quoted names of tables.
	dropped map[string]bool
	// taken are the rows that tasks before the one at work would have taken, by table.
	taken map[string]int64
	// tables are what the task at work would do.
	tables []*TablePreview
}

func newPreview(chosen []plan.Task) *preview {
	return &preview{
		chosen:    chosen,
		sets:      map[string][]int64{},
		worked:    map[string][]int64{},
		begun:     map[string][]int64{},
		void:      map[string]bool{},
		coalesced: map[string]time.Time{},
		tallies:   map[string]purge.Tally{},
		taken:     map[string]int64{},
		dropped:   map[string]bool{},
	}
}

// goOn takes over what a previous worker has found of tasks that are done.
func (p *preview) goOn(done map[string]Planned) {
	for _, what := range p.chosen {
		found, is := done[what.Name]
		if !is {
			continue
		}
		if what.ParentSet != nil {
			p.begun[what.Name], p.worked[what.Name], p.sets[what.Name] = found.Set, without(
				found.Set,
				found.Kept,
			), without(
				found.Set,
				found.Stays,
			)
		}
		if found.CoalescedFrom != nil {
			p.coalesced[what.Name] = *found.CoalescedFrom
		}
		for _, name := range found.Dropped {
			p.dropped[name] = true
		}
		for _, t := range found.Preview {
			p.taken[t.Table] += t.Rows
		}
	}
}

// upTo are the chosen tasks up to one that would do something.
func (p *preview) upTo(name string) (some []plan.Task) {
	for _, t := range p.chosen {
		if !p.void[t.Name] {
			some = append(some, t)
		}
		if t.Name == name {
			break
		}
	}
	return some
}

// follows reports whether a task comes after another.
func (p *preview) follows(task, other string) bool {
	place := func(name string) int {
		return slices.IndexFunc(p.chosen, func(t plan.Task) bool { return t.Name == name })
	}
	return place(task) > place(other)
}

// at is what the task at work would do to a table.
func (p *preview) at(table string, action Action, rule string) *TablePreview {
	for _, t := range p.tables {
		if t.Table == table && t.Action == action {
			if rule != "" && !strings.Contains(t.Rule, rule) {
				t.Rule += "; or " + rule
			}
			return t
		}
	}
	t := &TablePreview{Table: table, Action: action, Rule: rule}
	p.tables = append(p.tables, t)
	return t
}

// add adds rows of a table that a job would take.
func (p *preview) add(t *TablePreview, of *campaign.Table, relation string, found purge.Tally) {
	t.of = of
	all := purge.Tally{Oldest: t.Oldest, Newest: t.Newest, Keys: t.Sample}
	all.Add(found)
	t.Rows, t.Oldest, t.Newest, t.Sample = t.Rows+found.Rows, all.Oldest, all.Newest, all.Keys
	if !slices.Contains(t.relations, relation) {
		t.relations = append(t.relations, relation)
	}
}

// remark adds what is not known before it is done.
func (t *TablePreview) remark(text string) {
	if !slices.Contains(t.Remarks, text) {
		t.Remarks = append(t.Remarks, text)
	}
}

// drop adds work tables that would be dropped.
func (p *preview) drop(mask, rule string, tables []campaign.WorkTable) {
	if len(tables) == 0 {
		return
	}
	t := p.at(mask, Drop, rule)
	for _, w := range tables {
		p.dropped[w.Quoted()] = true
		t.Tables++
		t.dropped = append(t.dropped, w.Quoted())
		if len(t.Names) < namesShown {
			t.Names = append(t.Names, w.Name)
		}
	}
}

// take returns what the task at work would do, and forgets it. A table without a row that goes is left out, unless a
// guard trips nevertheless, or its rows were not counted.
func (p *preview) take() (tables []TablePreview) {
	for _, t := range p.tables {
		if t.Rows > 0 || t.Tables > 0 || t.Guards != nil || t.Remarks != nil {
			tables = append(tables, *t)
		}
	}
	p.tables = nil
	return tables
}

// ruleOf is why the rows of a job go.
func ruleOf(j plan.Job, set *plan.Parents) string {
	switch {
	case !j.Step.Dependent():
		return j.Rule
	case j.Step.OfParents:
		return strings.Join(
			slices.DeleteFunc([]string{set.Rule, j.Rule}, func(s string) bool { return s == "" }),
			"; and ",
		)
	case j.Rule == "":
		return fmt.Sprintf("of a row of %s: %s", set.Table.Name, set.Rule)
	}
	return fmt.Sprintf("%s, of a row of %s: %s", j.Rule, set.Table.Name, set.Rule)
}

// standing is what is known of relations ($1) without reading them, whether those of them that rows go from ($2) have
// triggers or rules, and which of these refuse an action ($3), since it is published and they have no replica identity.
const standing = `
SELECT sum(greatest(c.reltuples, 0))::bigint, sum(pg_total_relation_size(c.oid))::bigint,
  sum(pg_relation_size(c.oid))::bigint,
  bool_or(name = ANY ($2) AND (EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
    AND t.tgenabled <> 'D') OR c.relkind IN ('r', 'p') AND EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = c.oid))),
  bool_or(c.relpersistence = 'u' AND pg_is_in_recovery()),
  array_agg(c.oid::regclass::text ORDER BY name) FILTER (WHERE name = ANY ($2) AND c.relreplident <> 'f'
    AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND CASE c.relreplident
      WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END)
    AND EXISTS (SELECT FROM pg_publication p JOIN pg_publication_tables t USING (pubname)
      JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class x ON x.relnamespace = n.oid
      AND x.relname = t.tablename
      WHERE CASE $3 WHEN 'DELETE' THEN p.pubdelete ELSE p.pubupdate END AND (x.oid = c.oid OR x.oid IN (SELECT relid
        FROM pg_partition_ancestors(c.oid)))))
FROM unnest($1::text[]) AS name JOIN pg_class c ON c.oid = to_regclass(name)`

// measured is what the task would do, those tables first of which most goes, with estimates of sizes, and remarks. A
// table that is locked has none.
func (t *task) measured(ctx context.Context) []TablePreview {
	tables := t.preview.take()
	for i := range tables {
		p := &tables[i]
		var rows, bytes, heap *int64
		var triggers, absent *bool
		var unidentified []string
		err := pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100"); err != nil {
				return err
			}
			err := tx.QueryRow(ctx, standing, slices.Concat(p.all(), p.dropped), p.relations, string(p.Action)).
				Scan(&rows, &bytes, &heap, &triggers, &absent, &unidentified)
			if err != nil || rows == nil || *absent || p.of == nil || p.of.Elsewhere != "" {
				return err
			}
			return rowsOfTable(ctx, tx, p.of, *heap, rows)
		})
		if err != nil || rows == nil || bytes == nil {
			continue
		}
		if *absent {
			p.remark("unlogged: the standby has none of the rows, so that sizes are not known")
			continue
		}
		switch p.Action {
		case Drop:
			p.Bytes = *bytes
			continue
		case Delete:
			p.RowsTotal = max(*rows, p.Rows)
			p.Bytes = int64(float64(*bytes) * float64(p.Rows) / float64(p.RowsTotal))
		case Update:
			p.RowsTotal = max(*rows, p.Rows)
		}
		if triggers != nil && *triggers {
			p.remark("a trigger or rule of the table may keep rows, or change others")
		}
		for _, name := range unidentified {
			p.remark(
				name + " is published and has no replica identity, so that the server refuses this: ALTER TABLE " + name + " REPLICA IDENTITY " +
					"FULL helps, or USING INDEX with a unique index",
			)
		}
	}
	slices.SortStableFunc(tables, func(a, b TablePreview) int { return cmp.Compare(b.Rows+b.Tables, a.Rows+a.Tables) })
	return tables
}

// all are the relations of its table.
func (p *TablePreview) all() (names []string) {
	if p.of != nil {
		for _, leaf := range p.of.Leaves {
			names = append(names, leaf.Quoted())
		}
	}
	return names
}

// countedBytes is how large a table may be to be counted where an estimate would do: 8 MiB.
const countedBytes = 8 << 20

// rowsOfTable estimates how many rows a table of a size has: a small one is counted, of a large one the planner knows
// by its size, even if it was never analyzed.
func rowsOfTable(ctx context.Context, tx pgx.Tx, table *campaign.Table, bytes int64, rows *int64) error {
	if bytes <= countedBytes {
		return tx.QueryRow(ctx, "SELECT count(*) FROM "+table.Quoted()).Scan(rows)
	}
	var explained []struct {
		Plan struct {
			Rows int64 `json:"Plan Rows"`
		}
	}
	err := tx.QueryRow(ctx, "EXPLAIN (FORMAT JSON) SELECT FROM "+table.Quoted()).Scan(&explained)
	if err == nil && len(explained) > 0 {
		*rows = explained[0].Plan.Rows
	}
	return err
}

// void forgets a task that failed, or was not run, unless it has found its set: then it does what it can of it.
func (d *database) void(t plan.Task) {
	if d.preview.sets[t.Name] == nil {
		d.preview.void[t.Name] = true
		clear(d.plans) // they see what it would have done
	}
}
