package cleanup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// keeps returns how long the trash keeps the task's rows; 0 if it does not, as on mid-sourcing servers.
func (a *Attempt) keeps() time.Duration { return keeps(a.Task) }

func keeps(t rules.Task) time.Duration {
	if t.Undo == nil {
		return 0
	}
	return *t.Undo
}

// notUndone is why the trash does not keep what happens to a table.
type notUndone struct {
	table  *campaign.Table
	action PreviewAction
	why    string
}

// notKept returns what the trash does not keep. It fails if the task must not run with undo because of that.
func (a *Attempt) notKept() (list []notUndone, err error) {
	for _, j := range a.Jobs {
		switch why := j.NotUndoable(); {
		case j.Set != nil:
			list = append(list, notUndone{j.Table, ActionUpdate, "its rows are updated"})
		case j.NoTIDs:
			list = append(list, notUndone{j.Table, ActionDelete, why})
		case why != "":
			return nil, notUndoable(a.Task, j.Name, why)
		}
		for _, t := range j.Affected {
			if j.Set == nil && t != j.Table && t.Location != "" {
				return nil, notUndoable(a.Task, j.Name, fmt.Sprintf("its rows cascade to rows of %s on another server", t.Name))
			}
		}
	}
	if parents := a.Task.ParentRule; parents != nil && parents.MidSourced && len(a.run.Config.MidSourcing.Databases) > 0 {
		list = append(list, notUndone{
			a.Plan.Parents.Table, ActionDelete,
			"their copies on mid-sourcing servers are deleted there",
		})
	}
	if r := a.Task.RollUp; r != nil {
		if table := a.Binder.Env.Catalog.Table(r.Table); table != nil {
			list = append(list, notUndone{table, ActionDelete, "its rows are replaced by their sums"})
		}
	}
	return list, nil
}

// checkTables fails if the trash cannot keep the rows of a table because of the table's rules, triggers or owner, or
// because the role may not lock rows that foreign keys delete, which moving them takes. It warns if rows could not be
// restored to their tables.
func (a *Attempt) checkTables(ctx context.Context, parents rules.ChosenParents) error {
	var sweeps []purge.Sweep
	var tables []string
	for _, j := range a.Jobs {
		if j.Set != nil || j.NoTIDs {
			continue
		}
		s, err := a.Binder.Sweep(ctx, &j, parents.Of(j))
		if err != nil {
			return err
		}
		sweeps, tables = append(sweeps, s), append(tables, j.Table.Quoted())
		for _, i := range j.Below() {
			tables = append(tables, j.Cascade.Tables[i])
		}
	}
	if err := a.Binder.Engine.CheckTrash(ctx, sweeps); err != nil { // a GRANT would not help then
		return err
	}
	for _, s := range sweeps {
		for _, i := range s.Below() {
			var may bool
			if err := a.Binder.Pool.QueryRow(ctx, "SELECT has_any_column_privilege($1::text::regclass, 'UPDATE')",
				s.Cascade.Tables[i]).Scan(&may); err != nil {
				return err
			}
			if !may {
				return notUndoable(a.Task, s.Name, fmt.Sprintf("the role cannot lock rows of %[1]s without UPDATE of a "+
					"column (GRANT UPDATE ON %[1]s)", s.Cascade.Tables[i]))
			}
		}
	}
	strangers, err := trash.Strangers(ctx, a.Binder.Pool, tables)
	if err != nil {
		return err
	}
	for _, s := range strangers {
		tables := strings.Join(s.Tables, ", ")
		m := message.UndoNeedsOwner.With("tables", tables, "owner", s.Owner,
			"statement", s.Grant()+s.OnlyForRestores())
		if s.Database != "" {
			m = message.UndoNeedsGrant.With("tables", tables, "owner", s.Owner,
				"statement", s.Grant()+s.OnlyForRestores(), "into_statement", s.GrantSchema())
		}
		a.Log(ctx, m)
	}
	return nil
}

// checkWorkTables fails if the task would drop a work table with partitions, which would not move with it. lists are
// the quoted names of tables of lists.
func (t *executedTask) checkWorkTables(ctx context.Context, lists []string) error {
	const partitioned = `SELECT min(relname)::text FROM unnest($1::text[]) AS name JOIN pg_class c
		ON c.oid = to_regclass(name) AND c.relkind = 'p'`
	var name *string
	if err := t.Binder.Pool.QueryRow(ctx, partitioned, lists).Scan(&name); err != nil {
		return err
	}
	if name != nil {
		return partitionsStay(t.Task, *name)
	}
	for _, d := range t.Plan.Drops {
		tables, _, err := t.Binder.Env.Catalog.WorkTables(ctx, t.Binder.Pool, d.Prefix, d.Bare)
		if err != nil {
			return err
		}
		tables = slices.DeleteFunc(tables, func(w campaign.WorkTable) bool {
			return len(w.Partitions) == 0 || !drops{t}.isPlanned(w)
		})
		if len(tables) == 0 {
			continue
		}
		find := WorkTableFinder{Attempt: t.Attempt}.unused(d)
		unused := func(tables []campaign.WorkTable) ([]campaign.WorkTable, error) {
			return find(ctx, t.Binder.Pool, tables)
		}
		tables, _, err = heldWorkTables{Attempt: t.Attempt}.Filter(ctx, d.WorkTables.Owner, tables, unused)
		if err == nil {
			tables, err = unused(tables)
		}
		if err != nil {
			return err
		}
		if len(tables) > 0 {
			return partitionsStay(t.Task, tables[0].Name)
		}
	}
	return nil
}

// checkUndo fails, before anything is deleted, if the task has undo and the trash cannot keep what it deletes. It logs
// what is not kept.
func (t *executedTask) checkUndo(ctx context.Context, f *JudgedTask) error {
	if t.keeps() == 0 {
		return nil
	}
	if err := trash.Prepare(ctx, t.Binder.Pool, false); err != nil {
		return err
	}
	list, err := t.notKept()
	if err == nil {
		err = t.checkTables(ctx, f.Parents)
	}
	if err == nil {
		err = t.checkWorkTables(ctx, f.lists)
	}
	if err != nil {
		return err
	}
	var said []string
	for _, n := range list {
		m := message.NoUndo.With("table", n.table.Name, "problem", n.why)
		if !slices.Contains(said, m.Text) { // the partitions of a table have the same name
			said = append(said, m.Text)
			t.Log(ctx, m)
		}
	}
	limit := t.run.trashLimit()
	room, err := limit.room(ctx)
	if err != nil {
		return err
	}
	need, err := f.trashBytes(ctx, float64(room))
	if err == nil && f.lists != nil {
		var bytes int64
		bytes, _, err = workTableSizes(ctx, t.Binder.Pool, f.lists)
		need += float64(bytes)
	}
	if err == nil && need > float64(max(room, 0)) {
		err = limit.full(int64(need), room)
	}
	return err
}

// trashBytes estimates how many bytes the rows of the task take in the trash. It counts rows only if the planner's
// estimates come close to the room there, and no more of them than there is room for.
func (t *JudgedTask) trashBytes(ctx context.Context, room float64) (bytes float64, err error) {
	var (
		kept   []*figures
		widths []float64
	)
	for _, f := range t.figures() {
		if !slices.ContainsFunc(f.jobs, func(j rules.Job) bool { return j.Set == nil && !j.NoTIDs }) {
			continue
		}
		width, err := f.width(ctx)
		if err != nil {
			return 0, err
		}
		rows, err := f.Estimate(ctx)
		if err == nil && math.IsInf(rows, 1) {
			rows, _, err = f.Total(ctx)
		}
		if err != nil {
			return 0, err
		}
		kept, widths, bytes = append(kept, f), append(widths, width), bytes+rows*width
	}
	if bytes*guard.SafetyFactor < room {
		return bytes, nil
	}
	bytes = 0
	for i, f := range kept {
		rows, err := f.Count(ctx, int64(max(room-bytes, 0)/widths[i]))
		if bytes += float64(rows) * widths[i]; err != nil || bytes > room {
			return bytes, err
		}
	}
	return bytes, nil
}

// width estimates how many bytes a row of the table takes in the trash.
func (f *figures) width(ctx context.Context) (float64, error) {
	of := trashed{}
	for _, leaf := range f.table.Leaves {
		of[leaf.Quoted()] = 1
	}
	bytes, err := of.bytes(ctx, f.Attempt.Database().Primary)
	return float64(bytes) / float64(max(len(of), 1)), err
}

// trashed are how many rows of relations, by their quoted names, go to the trash.
type trashed map[string]int64

// whole means all rows of a relation, which goes to the trash with its indexes.
const whole = -1

// bytes estimates how many bytes the rows take in the trash.
func (t trashed) bytes(ctx context.Context, db campaign.Querier) (bytes int64, err error) {
	names := slices.Sorted(maps.Keys(t))
	rows := make([]int64, len(names))
	for i, name := range names {
		rows[i] = t[name]
	}
	return bytes, db.QueryRow(ctx, trashedBytes, names, rows).Scan(&bytes)
}

// trashedBytes computes the width of a row of the relations $1 from the statistics of their columns, or from the types
// of these before the first ANALYZE, and adds a row's share of the TOAST table, as far as that is not free space: a
// chunk takes about 2 kB. A table of the trash is as dense as can be, since nothing was deleted from it.
const trashedBytes = `
SELECT COALESCE(sum(CASE WHEN rows < 0 THEN pg_total_relation_size(c.oid)
    ELSE rows * (width * 8192.0 / 8168 + COALESCE(toast.bytes, 0)) END), 0)::bigint
FROM unnest($1::text[], $2::bigint[]) AS u (name, rows) JOIN pg_class c ON c.oid = to_regclass(name)
  JOIN pg_namespace n ON n.oid = c.relnamespace
  CROSS JOIN LATERAL (SELECT 4 + ceil((24 + sum(COALESCE(s.avg_width * (1 - s.null_frac),
        CASE WHEN a.attlen > 0 THEN a.attlen ELSE 32 END))) / 8) * 8 AS width
    FROM pg_attribute a LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname
      AND s.attname = a.attname AND NOT s.inherited
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS w
  LEFT JOIN LATERAL (SELECT least(pg_relation_size(t.oid), CASE WHEN t.reltuples > 0 THEN t.reltuples * 2048 END)
      / NULLIF(CASE WHEN c.reltuples > 0 THEN c.reltuples ELSE pg_stat_get_live_tuples(c.oid) END, 0) AS bytes
    FROM pg_class t WHERE t.oid = c.reltoastrelid) AS toast ON true`

// checkUndo fails, before the first task, if the trash has no room for all that the saved plan would put there. A dry
// run warns if a run could not use the trash.
func (r *Run) checkUndo(ctx context.Context) error {
	var need int64
	undo := false
	for _, t := range r.Config.Todo {
		if keeps(t) > 0 {
			undo, need = true, need+r.Config.SavedPlan[t.Name].trashBytes()
		}
	}
	if !undo {
		return nil
	}
	if !r.Config.DryRun {
		return r.trashLimit().check(ctx, need)
	}
	err := trash.Prepare(ctx, r.Database.Primary, true)
	if refused := (*failure.Refusal)(nil); errors.As(err, &refused) {
		r.Database.Log(ctx, message.UndoWouldRefuse.With("problem", refused.Message))
		return nil
	}
	return err
}

// CheckUndo fails with a failure.Refusal if the task has undo and a run would refuse it because of that, however many
// rows it deletes.
func (a *Attempt) CheckUndo(ctx context.Context) error {
	if a.keeps() == 0 {
		return nil
	}
	err := trash.Prepare(ctx, a.Database().Primary, true)
	if err == nil {
		_, err = a.undoable(ctx)
	}
	return err
}

// undoable returns what the trash does not keep. It fails if a run would refuse the task because of that.
func (a *Attempt) undoable(ctx context.Context) ([]notUndone, error) {
	list, err := a.notKept()
	if err == nil {
		err = a.checkTables(ctx, rules.ChosenParents{})
	}
	return list, err
}

// previewUndo adds to the tables of a preview why something could not be undone, and to the outcome why a run would
// refuse the task.
func (x *counting) previewUndo(ctx context.Context, a *Attempt, o *Outcome) error {
	divided := x.found.divided
	x.found.divided = nil
	if a.keeps() == 0 || o.State != Succeeded {
		return nil
	}
	list, err := a.undoable(ctx)
	if err == nil && divided != nil {
		err = partitionsStay(a.Task, divided.Name)
	}
	for i := range o.Preview.Tables {
		t := &o.Preview.Tables[i]
		for _, n := range list {
			if n.table.Quoted() == t.Table && n.action == t.Action && !slices.Contains(t.NoUndo, n.why) {
				t.NoUndo = append(t.NoUndo, n.why)
			}
		}
	}
	if bytes := o.Preview.trashBytes(); err == nil && bytes > 0 {
		x.found.trashBytes += bytes
		err = x.run.trashLimit().check(ctx, x.found.trashBytes)
	}
	refused := (*failure.Refusal)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	why := refused.Message
	if refused.Reason == failure.ReasonTrashFull && x.found.trashBytes > o.Preview.trashBytes() {
		why = "with the rows that earlier tasks delete, " + why
	}
	o.Details = append(o.Details, message.UndoWouldRefuse.With("problem", why))
	return nil
}

func (s SavedTask) trashBytes() (sum int64) {
	for _, t := range s.Tables {
		sum += t.TrashBytes
	}
	return sum
}

func notUndoable(t rules.Task, table, why string) error {
	help := fmt.Sprintf("run the task without undo (cleanupd run --task %s --undo 0)", t.Name)
	if t.Kind == rules.Policy {
		help += ", or set undo: 0s in the policy"
	}
	return &failure.Refusal{
		Reason:   failure.ReasonNotUndoable,
		Metadata: map[string]string{"table": table},
		Message:  fmt.Sprintf("%s: the trash cannot keep what goes with its rows: %s; %s", table, why, help),
	}
}

// keep makes a sweep move its rows to the trash, if the task keeps them.
func (t *executedTask) keep(ctx context.Context, s *purge.Sweep) error {
	if t.keeps() == 0 || s.Set != nil || s.NoTIDs {
		return nil
	}
	if err := t.can().Put(ctx, t.Task.Name, t.keeps(), s); err != nil {
		return err
	}
	relation := s.Relation
	s.Trash.Move = func(ctx context.Context, tx pgx.Tx, rows int64) error {
		return t.move(ctx, tx, trash.Dropped{Kind: trash.Partition, Name: relation, Rows: rows})
	}
	return nil
}

// move moves a relation to the trash, if that has room for it.
func (t *executedTask) move(ctx context.Context, tx pgx.Tx, d trash.Dropped) error {
	var bytes int64
	if d.Kind != trash.View {
		if err := tx.QueryRow(ctx, "SELECT pg_total_relation_size($1::text::regclass)", d.Name).Scan(&bytes); err != nil {
			return err
		}
	}
	if err := (trashLimit{tx, t.run.Config.TrashMaxBytes}).check(ctx, bytes); err != nil {
		return err
	}
	return t.can().Move(ctx, tx, t.Task.Name, t.keeps(), d)
}

func (t *executedTask) can() *trash.Can {
	return &trash.Can{Pool: t.Binder.Pool, Run: t.run.Config.ID}
}

// countAll counts the rows of work tables, with a lock that lets others read them but not write: counting may take
// long.
func countAll(ctx context.Context, tx pgx.Tx, tables []campaign.WorkTable) (rows []int64, err error) {
	rows = make([]int64, len(tables))
	for i, w := range tables {
		if w.View {
			continue
		}
		count, args := "SELECT count(*) FROM "+w.Quoted(), []any{}
		if w.ByFunction {
			count, args = "SELECT "+campaign.CountFunction+"($1::text::regclass)", []any{w.Quoted()}
		} else if _, err := tx.Exec(ctx, "LOCK TABLE "+w.Quoted()+" IN SHARE MODE"); err != nil {
			return nil, err
		}
		if err := tx.QueryRow(ctx, count, args...).Scan(&rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// onlyDefinition is why a view of another role cannot be undone.
const onlyDefinition = "only its owner can create the view again; the trash keeps its definition"

func partitionsStay(t rules.Task, table string) error {
	return notUndoable(t, table, "its partitions would not be moved")
}

// moveAll moves work tables to the trash, in the transaction in which they would be dropped.
func (t *executedTask) moveAll(ctx context.Context, tx pgx.Tx, tables []campaign.WorkTable, rows []int64) error {
	for i, w := range tables {
		dropped := trash.Dropped{Kind: trash.Table, Name: w.Quoted(), Rows: rows[i], ByFunction: w.ByFunction}
		switch {
		case len(w.Partitions) > 0:
			return partitionsStay(t.Task, w.Name)
		case w.View:
			dropped.Kind = trash.View
			if w.ByFunction {
				t.Log(ctx, message.NoUndo.With("table", w.Name, "problem", onlyDefinition))
			}
		}
		if err := t.move(ctx, tx, dropped); err != nil {
			return err
		}
	}
	return nil
}

// trashLimit is how large the trash of all runs may become.
type trashLimit struct {
	db       campaign.Querier
	maxBytes int64
}

func (r *Run) trashLimit() trashLimit { return trashLimit{r.Database.Primary, r.Config.TrashMaxBytes} }

// check fails if the trash has no room for need more bytes.
func (l trashLimit) check(ctx context.Context, need int64) error {
	room, err := l.room(ctx)
	if err == nil && need > max(room, 0) {
		err = l.full(need, room)
	}
	return err
}

// room returns how many more bytes the trash may take; it is negative if the trash is too large already.
func (l trashLimit) room(ctx context.Context) (int64, error) {
	var bytes int64
	err := l.db.QueryRow(ctx, trash.BytesSQL).Scan(&bytes)
	return l.maxBytes - bytes, err
}

// full returns the refusal if the trash has no room. need is how many bytes would go there; 0 if that is not known.
func (l trashLimit) full(need, room int64) error {
	size := func(bytes int64) string { return humanize.IBytes(uint64(max(bytes, 0))) }
	has := fmt.Sprintf("the trash has %s, and may have %s", size(l.maxBytes-room), size(l.maxBytes))
	metadata := map[string]string{"bytes": fmt.Sprint(l.maxBytes - room), "max_bytes": fmt.Sprint(l.maxBytes)}
	if need > 0 {
		has = fmt.Sprintf("about %s more would go to the trash, and %s", size(need), has)
		metadata["need_bytes"] = fmt.Sprint(need)
	}
	return &failure.Refusal{
		Reason:   failure.ReasonTrashFull,
		Metadata: metadata,
		Message:  has + ": purge some of it (cleanupd trash purge), raise --undo-max-bytes, or run without undo",
	}
}

// trashGate stops batches once the trash is too large, or published. It checks that once a second.
type trashGate struct {
	trashLimit
	mu     sync.Mutex
	looked time.Time
	left   int64
}

// open fails if the trash is full or published.
func (g *trashGate) open(ctx context.Context) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.looked) > time.Second {
		if g.left, err = g.room(ctx); err != nil {
			return err
		}
		if err := trash.Unpublished(ctx, g.db); err != nil {
			return err
		}
		g.looked = time.Now()
	}
	if g.left < 0 {
		return g.full(0, g.left)
	}
	return nil
}
