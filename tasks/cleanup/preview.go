package cleanup

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

type PreviewAction string

const (
	ActionDelete PreviewAction = "DELETE"
	ActionUpdate PreviewAction = "UPDATE"
	ActionDrop   PreviewAction = "DROP"
	ActionDetach PreviewAction = "DETACH" // partitions, with their rows
)

// ActionOf returns the action of a sweep. updates is set if the sweep updates rows.
func ActionOf(updates bool, p purge.Partitions) PreviewAction {
	switch {
	case updates:
		return ActionUpdate
	case p == purge.DetachPartitions:
		return ActionDetach
	}
	return ActionDelete
}

// PreviewTable is what a task would do to a table, or to the work tables of a kind.
type PreviewTable struct {
	// Table is the quoted name with the schema, or the pattern of the names of work tables.
	Table  string        `json:"Table"`
	Action PreviewAction `json:"Action"`
	Rows   int64         `json:"Rows"`
	// Cascaded is how many of Rows foreign keys would delete or change together with other rows.
	Cascaded int64 `json:"Cascaded,omitempty"`
	// RowsTotal is how many rows the table has, and Bytes an estimate of the size of the rows to delete.
	RowsTotal      int64 `json:"RowsTotal,omitempty"`
	TotalEstimated bool  `json:"TotalEstimated,omitempty"`
	Bytes          int64 `json:"Bytes,omitempty"`
	// TrashBytes is an estimate of what would go to the trash, and NoUndo says why something could not be undone. A dry
	// run without undo has neither.
	TrashBytes int64    `json:"TrashBytes,omitempty"`
	NoUndo     []string `json:"NoUndo,omitempty"`
	// Tables is how many work tables would be dropped, and Partitions how many partitions would be dropped or detached,
	// with all of their rows. Names are some of them.
	Tables     int64    `json:"Tables,omitempty"`
	Partitions int64    `json:"Partitions,omitempty"`
	Names      []string `json:"Names,omitempty"`
	// Oldest and Newest are the first and the last date of the rows; nil if the rule compares no date.
	Oldest *time.Time `json:"Oldest,omitempty"`
	Newest *time.Time `json:"Newest,omitempty"`
	Sample []int64    `json:"Sample,omitempty"`
	Rule   string     `json:"Rule,omitempty"`
	// BaselineRows is the number of rows, or of tables, with the stored options; nil if the dry run uses these.
	BaselineRows *int64       `json:"BaselineRows,omitempty"`
	Guards       []guard.Trip `json:"Guards,omitempty"`
	// Remarks say what the numbers do not, such as effects that are not known before the rows are deleted.
	Remarks []string `json:"Remarks,omitempty"`
}

// SavedTask is what a task would do. A run that follows the saved plan does this and nothing else.
type SavedTask struct {
	Basis Basis `json:"Basis"`
	// Relations are the object ids of the relations that the task changes and reads, by their quoted names.
	Relations map[string]string `json:"Relations,omitempty"`
	// Parents are the ids of the parents. Retained are those whose own rows are retained.
	Parents  []int64 `json:"Parents,omitempty"`
	Retained []int64 `json:"Retained,omitempty"`
	// Dropped are the quoted names of the work tables to drop, and of the partitions to detach.
	Dropped []string `json:"Dropped,omitempty"`
	// Untouched are the parents whose dependent rows would be retained too. RolledUpFrom is the start of the period that
	// the task rolls up; nil if it rolls nothing up. Another worker needs both to continue the dry run.
	Untouched    []int64    `json:"Untouched,omitempty"`
	RolledUpFrom *time.Time `json:"RolledUpFrom,omitempty"`
	// Tables are stored separately.
	Tables []PreviewTable `json:"-"`
}

// Basis is all that a run depends on, apart from the rows and the time.
type Basis struct {
	Version string `json:"Version"`
	// Options are the effective delays, by name. Mappings are the tables that the delivery mappings name, by column.
	Options     map[string]string   `json:"Options"`
	Mappings    map[string][]string `json:"Mappings"`
	MidSourcing []string            `json:"MidSourcing"`
	// External has the rules of tasks on other databases, and Policies hashes of policies and of what they apply to, by
	// task.
	External map[string]string `json:"External,omitempty"`
	Policies map[string]string `json:"Policies,omitempty"`
	Holds    []string          `json:"Holds,omitempty"`
}

// Changes describes what differs; nil if nothing does.
func (b Basis) Changes(now Basis) (changes []string) {
	compare := func(name, before, after string) {
		if before != after {
			changes = append(changes, fmt.Sprintf("%s was %s, and is %s", name, before, after))
		}
	}
	compare("the program's version", b.Version, now.Version)
	for _, name := range slices.Sorted(maps.Keys(now.Options)) {
		compare("option "+name, b.Options[name], now.Options[name])
	}
	for _, name := range unionKeys(b.External, now.External) {
		compare("the task "+name, cmp.Or(b.External[name], "none"), cmp.Or(now.External[name], "none"))
	}
	for _, name := range unionKeys(b.Policies, now.Policies) {
		if b.Policies[name] != now.Policies[name] {
			changes = append(changes, "the rule of the task "+name+", or what it applies to, has changed")
		}
	}
	for _, column := range unionKeys(b.Mappings, now.Mappings) {
		compare("NmsDeliveryMapping."+column, listNames(b.Mappings[column]), listNames(now.Mappings[column]))
	}
	if listNames(b.Holds) != listNames(now.Holds) { // only admins may see the holds
		changes = append(changes, "the holds have changed")
	}
	compare("--mid-sourcing", listNames(b.MidSourcing), listNames(now.MidSourcing))
	return changes
}

func unionKeys[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func listNames(names []string) string {
	return cmp.Or(strings.Join(names, ", "), "none")
}

type results struct {
	chosen []rules.Task
	// state is what later tasks depend on.
	state   rules.DryRun
	parents map[string][]int64
	// ineffective are the tasks that would change nothing, since they failed or were not run. problems are the
	// reasons.
	ineffective map[string]bool
	problems    map[string]string
	// tallies are the rows found, by the keys of jobs. Some of these belong to tasks that have not begun.
	tallies map[string]purge.Tally
	// dropped are quoted names of work tables. divided is a work table with partitions; nil if the current task drops
	// none.
	dropped map[string]bool
	divided *campaign.WorkTable
	// removed are the quoted names of partitions that would be dropped or detached.
	removed map[string]bool
	// deleted are the rows that the tasks before the current one would delete or update, by table.
	deleted map[string]int64
	// trashBytes is how many bytes these tasks would put into the trash.
	trashBytes int64
	tables     tables
}

func newResults(chosen []rules.Task) *results {
	return &results{
		chosen: chosen,
		state: rules.DryRun{
			Deleted:  map[string][]int64{},
			Parents:  map[string][]int64{},
			RolledUp: map[string]*time.Time{},
		},
		parents:     map[string][]int64{},
		ineffective: map[string]bool{},
		problems:    map[string]string{},
		tallies:     map[string]purge.Tally{},
		dropped:     map[string]bool{},
		removed:     map[string]bool{},
		deleted:     map[string]int64{},
	}
}

func (r *results) resume(t rules.Task, done SavedTask) {
	if t.ParentRule != nil {
		r.parents[t.Name] = done.Parents
		r.state.Parents[t.Name] = rules.Without(done.Parents, done.Untouched)
		r.state.Deleted[t.Name] = rules.Without(done.Parents, done.Retained)
	}
	if done.RolledUpFrom != nil {
		r.state.RolledUp[t.Name] = done.RolledUpFrom
	}
	for _, name := range done.Dropped {
		r.dropped[name] = true
	}
	for _, table := range done.Tables {
		r.deleted[table.Table] += table.Rows
	}
	r.trashBytes += done.trashBytes()
}

// predecessors returns the tasks up to and including the named one, without ineffective tasks.
func (r *results) predecessors(name string) (tasks []rules.Task) {
	for _, t := range r.chosen {
		if !r.ineffective[t.Name] {
			tasks = append(tasks, t)
		}
		if t.Name == name {
			break
		}
	}
	return tasks
}

func (r *results) follows(task, other string) bool {
	place := func(name string) int {
		return slices.IndexFunc(r.chosen, func(t rules.Task) bool { return t.Name == name })
	}
	return place(task) > place(other)
}

// recordParents records what would become of a task's parents, for later tasks.
func (r *results) recordParents(task string, p rules.ChosenParents) {
	r.state.Parents[task], r.state.Deleted[task] = p.IDs, p.Own()
}

func (r *results) recordDrops(mask, rule string, dropped []campaign.WorkTable) {
	if len(dropped) == 0 {
		return
	}
	t := r.tables.at(mask, ActionDrop, rule)
	for _, w := range dropped {
		if len(w.Partitions) > 0 {
			r.divided = &w
		}
		r.dropped[w.Quoted()] = true
		t.addDropped(w)
	}
}

func (r *results) task(task string) *SavedTask {
	p := &SavedTask{
		Parents:   r.parents[task],
		Untouched: rules.Without(r.parents[task], r.state.Parents[task]),
		Retained:  rules.Without(r.parents[task], r.state.Deleted[task]),
	}
	if from := r.state.RolledUp[task]; from != nil {
		if from.Before(time.Time{}) { // JSON cannot represent such years
			from = &time.Time{}
		}
		p.RolledUpFrom = from
	}
	return p
}

// properties selects the rows and sizes that the catalog has for the relations $1, and whether the relations $2 to
// delete from or to update, or tables above them, have triggers or rules for the command ($3, as in pg_trigger, and $4,
// as in pg_rewrite): 2 if these may suppress the command, or would be bypassed by it, 1 if they only act besides,
// otherwise null.
const properties = `
SELECT sum(greatest(c.reltuples, 0))::bigint, sum(pg_total_relation_size(c.oid))::bigint,
  sum(pg_relation_size(c.oid))::bigint,
  max(CASE WHEN name = ANY ($2) THEN (WITH RECURSIVE up (oid) AS (SELECT c.oid
      UNION SELECT i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = up.oid)
    SELECT max(found.effect) FROM up, LATERAL (
      SELECT CASE WHEN t.tgtype & 3 = 3 OR t.tgtype & 1 = 0 AND up.oid <> c.oid THEN 2 ELSE 1 END
        FROM pg_trigger t WHERE t.tgrelid = up.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
          AND t.tgtype & $3 <> 0
      UNION ALL SELECT CASE WHEN w.is_instead OR up.oid <> c.oid THEN 2 ELSE 1 END
        FROM pg_rewrite w WHERE w.ev_class = up.oid AND c.relkind IN ('r', 'p') AND w.ev_enabled IN ('O', 'A')
          AND w.ev_type::text = $4) AS found (effect)) END),
  bool_or(c.relpersistence = 'u' AND pg_is_in_recovery())
FROM unnest($1::text[]) AS name JOIN pg_class c ON c.oid = to_regclass(name)`

// preview returns what a task would do. The tables with the most rows come first.
func (x *counting) preview(ctx context.Context, a *Attempt) *SavedTask {
	p := x.found.task(a.Task.Name)
	p.Basis, p.Relations = basisOf(x.run.Config, x.run.Database.Env), a.Plan.Relations()
	x.remarkUnidentified(ctx, a)
	x.remarkUndated(ctx, a)
	for _, t := range x.found.tables.take() {
		x.measure(ctx, t, a.keeps() > 0)
		if t.foreignView && a.keeps() > 0 {
			t.NoUndo = append(t.NoUndo, onlyDefinition)
		}
		p.Tables = append(p.Tables, t.PreviewTable)
		p.Dropped = append(p.Dropped, t.dropped...)
	}
	slices.SortStableFunc(p.Tables, func(a, b PreviewTable) int {
		return cmp.Compare(b.Rows+b.Tables, a.Rows+a.Tables)
	})
	return p
}

// measure estimates the size of a table, what deleting the rows would free and, with undo, what would go to the trash.
// A locked table gets no estimate.
func (x *counting) measure(ctx context.Context, t *table, undo bool) {
	var rows, bytes, heap, triggers *int64
	var absent *bool
	event, command := 8, "4" // DELETE
	if t.Action == ActionUpdate {
		event, command = 16, "2"
	}
	err := pgx.BeginFunc(ctx, x.run.Database.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100"); err != nil {
			return err
		}
		relations := slices.Sorted(maps.Keys(t.found))
		err := tx.QueryRow(ctx, properties, t.all(), relations, event, command).
			Scan(&rows, &bytes, &heap, &triggers, &absent)
		if err != nil || rows == nil || *absent || t.of == nil {
			return err
		}
		if t.of.Location != "" {
			t.TotalEstimated = true
			return nil
		}
		*rows, t.TotalEstimated, err = countOrEstimate(ctx, tx, t.of, *heap)
		if err == nil && t.Action == ActionDelete && undo {
			t.TrashBytes, err = t.found.bytes(ctx, tx)
		}
		return err
	})
	if err != nil || rows == nil || bytes == nil {
		return
	}
	if *absent {
		t.remark("unlogged: the standby has none of the rows, so sizes are unknown")
		return
	}
	if t.Action == ActionDrop {
		t.Bytes = *bytes
		if undo {
			t.TrashBytes = *bytes
		}
		return
	}
	t.RowsTotal = max(*rows, t.Rows)
	if t.Action != ActionUpdate && t.RowsTotal > 0 {
		t.Bytes = int64(float64(*bytes) * float64(t.Rows) / float64(t.RowsTotal))
	}
	switch {
	case triggers == nil:
	case *triggers > 1:
		t.remark("an estimate: a trigger or rule of the table may keep rows, or change others")
	default:
		t.remark("a trigger or rule of the table may change other rows")
	}
}

func (t *table) all() (names []string) {
	if t.of == nil {
		return t.dropped
	}
	for _, leaf := range t.of.Leaves {
		names = append(names, leaf.Quoted())
	}
	return names
}

// maxCountedBytes is the size of the largest table that is counted rather than estimated: 8 MiB.
const maxCountedBytes = 8 << 20

// countOrEstimate returns the number of rows of a table. The planner estimates that of a large table from its size,
// even if the table was never analyzed.
func countOrEstimate(
	ctx context.Context, tx pgx.Tx, t *campaign.Table, bytes int64,
) (rows int64, estimated bool, err error) {
	if bytes <= maxCountedBytes {
		return rows, false, tx.QueryRow(ctx, "SELECT count(*) FROM "+t.Quoted()).Scan(&rows)
	}
	var explained []struct {
		Plan struct {
			Rows int64 `json:"Plan Rows"`
		}
	}
	err = tx.QueryRow(ctx, "EXPLAIN (FORMAT JSON) SELECT FROM "+t.Quoted()).Scan(&explained)
	if err == nil && len(explained) > 0 {
		rows = explained[0].Plan.Rows
	}
	return rows, true, err
}

func (t *countedTask) judge(ctx context.Context) error {
	found := map[string]int64{}
	var masks, dropped []string
	for _, table := range t.found.tables.all {
		if table.Action == ActionDrop {
			masks, dropped = append(masks, table.Table), append(dropped, table.dropped...)
		} else {
			found[table.Table] += table.Rows
		}
	}
	if t.History != nil {
		trips, err := t.trips(ctx, found, dropped)
		if err != nil {
			return err
		}
		t.show(t.History.AddRefused(trips, t.Options()), masks)
	}
	for name, rows := range found {
		t.found.deleted[name] += rows
	}
	return nil
}

// show adds the guards that trip to the tables of the preview. masks are the patterns of the names of work tables.
func (t *countedTask) show(trips []guard.Trip, masks []string) {
	for _, trip := range trips {
		action, name := ActionDelete, trip.Table
		if trip.Guard == guard.Tables || trip.Guard == guard.Bytes {
			action = ActionDrop
			if len(masks) > 0 {
				name = masks[0]
			}
		} else if t.found.tables.has(name, ActionUpdate) && !t.found.tables.has(name, ActionDelete) {
			action = ActionUpdate
		}
		table := t.found.tables.at(name, action, "")
		table.Guards = append(table.Guards, trip)
	}
}

// trips returns the guards that the task would trip. found are rows by table; dropped are work tables.
func (t *countedTask) trips(ctx context.Context, found map[string]int64, dropped []string) ([]guard.Trip, error) {
	f := JudgedTask{
		Attempt: t.Attempt,
		Jobs:    t.Plan.Jobs,
		Parents: t.parents,
		Found:   found,
		Before:  func(table string) int64 { return t.found.deleted[table] },
	}
	trips, err := f.Judge(ctx, func(guard.Trip) {})
	mask := workTableMaskOf(t.Plan)
	if err != nil || mask == "" {
		return trips, err
	}
	more, err := t.History.JudgeDrops(ctx, guard.Drops{
		Mask:    mask,
		Tables:  int64(len(dropped)),
		Options: t.Options(),
		DryRun:  true,
		Sizes: func(ctx context.Context) (tables, database int64, err error) {
			return workTableSizes(ctx, t.Binder.Pool, dropped)
		},
	})
	return append(trips, more...), err
}
