package execute

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Planned is what a dry run has found of a task, for a run that does that and no more.
type Planned struct {
	// Basis is what it was found by.
	Basis Basis
	// Set is the ids of the task's set, Stays are those of them that stay; Dropped are the quoted names of the tables that go.
	Set     []int64  `json:",omitempty"`
	Stays   []int64  `json:",omitempty"`
	Dropped []string `json:",omitempty"`
	// Preview is what it would do, table by table.
	Preview []TablePreview `json:"-"`
}

// Basis is what decides, beside the rows and the clock, what a run does.
type Basis struct {
	// Version is that of the program.
	Version string
	// Options are the delays in force, by name, Mappings what the delivery mappings name, by column.
	Options  map[string]string
	Mappings map[string][]string
	// MidSourcing, Related and Include are what the operator has configured.
	MidSourcing, Related, Include []string
}

// basis is the current one.
func (d *database) basis() Basis {
	b := Basis{Version: "unknown", Options: d.given.Options.InForce(), Mappings: d.given.Catalog.Mappings(), Related: slices.Sorted(slices.Values(d.RelatedListTables))}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = info.Main.Version
	}
	b.MidSourcing = slices.Sorted(maps.Keys(d.MidSourcing.Databases))
	for _, name := range slices.Sorted(slices.Values(d.MidSourcing.Keep)) {
		b.MidSourcing = append(b.MidSourcing, name+"=keep")
	}
	for _, task := range slices.Sorted(maps.Keys(d.Include)) {
		for _, table := range slices.Sorted(slices.Values(d.Include[task])) {
			b.Include = append(b.Include, task+"="+table)
		}
	}
	return b
}

// changed says what differs now; nil: nothing does.
func (b Basis) changed(now Basis) (what []string) {
	differs := func(name, before, after string) {
		if before != after {
			what = append(what, fmt.Sprintf("%s was %s, and is %s", name, before, after))
		}
	}
	differs("the program's version", b.Version, now.Version)
	for _, name := range slices.Sorted(maps.Keys(now.Options)) {
		differs("option "+name, b.Options[name], now.Options[name])
	}
	columns := maps.Clone(b.Mappings)
	if columns == nil {
		columns = map[string][]string{}
	}
	maps.Copy(columns, now.Mappings)
	for _, column := range slices.Sorted(maps.Keys(columns)) {
		differs("NmsDeliveryMapping."+column, named(b.Mappings[column]), named(now.Mappings[column]))
	}
	differs("--mid-sourcing", named(b.MidSourcing), named(now.MidSourcing))
	differs("--related-list-table", named(b.Related), named(now.Related))
	differs("--include", named(b.Include), named(now.Include))
	return what
}

func named(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// Reasons for which a task is refused.
const (
	PlanStale    = "PLAN_STALE"
	PlanExceeded = "PLAN_EXCEEDED"
)

// RefusedError says that a task was refused for a reason that programs may ask for.
type RefusedError struct {
	// Reason is one of the constants, Metadata what it is about.
	Reason   string
	Metadata map[string]string
	Message  string
}

func (e *RefusedError) Error() string { return e.Message }

// Stale is the refusal of a plan.
func Stale(what ...string) *RefusedError {
	changed := strings.Join(what, "; ")
	return &RefusedError{PlanStale, map[string]string{"changed": changed}, "the plan does not hold any longer: " + changed}
}

// Confirm fails with a RefusedError if what a plan was made by is no longer so.
func Confirm(ctx context.Context, c Config, planned Planned) error {
	d := &database{Config: c}
	var err error
	if d.given, err = survey(ctx, c); err != nil {
		return err
	}
	return d.confirm(planned)
}

func (d *database) confirm(planned Planned) error {
	if changed := planned.Basis.changed(d.basis()); changed != nil {
		return Stale(changed...)
	}
	return nil
}

// plans is what the dry run has found of the task.
func (t *task) plans(ctx context.Context, name string) *Planned {
	p := &Planned{Basis: t.basis(), Set: t.preview.begun[name], Preview: t.measured(ctx)}
	goes := idSet(t.preview.sets[name])
	p.Stays = slices.DeleteFunc(slices.Clone(p.Set), func(id int64) bool { return goes[id] })
	for _, table := range p.Preview {
		p.Dropped = append(p.Dropped, table.dropped...)
	}
	return p
}

// planned is what is planned of the task; nil: it is not the run of a plan.
func (t *task) planned() *Planned {
	if t.Plan == nil {
		return nil
	}
	p := t.Plan[t.plan.Task.Name]
	return &p
}

// only are those of some ids that are planned.
func (t *task) only(ids []int64) []int64 {
	p := t.planned()
	if p == nil {
		return ids
	}
	may := idSet(p.Set)
	return slices.DeleteFunc(ids, func(id int64) bool { return !may[id] })
}

// mayDrop reports whether a table is among those that are planned to be dropped, by this task or another.
func (d *database) mayDrop(w campaign.WorkTable) bool {
	if d.Plan == nil {
		return true
	}
	for _, p := range d.Plan {
		if slices.Contains(p.Dropped, w.Quoted()) {
			return true
		}
	}
	return false
}

// More rows than were planned may be due by other means than age: a hundredth, and a thousand.
func allowed(planned int64) int64 { return planned + planned/100 + 1_000 }

// bounded is the account of the run of a plan: a batch fails with which a task would take too many rows of a table.
type bounded struct {
	Journal

	mu sync.Mutex
	// most and taken are of the task's tables, by action; tables are the tables of relations.
	most, taken map[bound]int64
	tables      map[string]string
	updates     string // the table whose rows are updated
}

type bound struct {
	table  string
	action Action
}

// begin begins a task, of which some rows are gone already, by relation.
func (a *bounded) begin(p Planned, jobs []plan.Job, gone map[string]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most, a.taken, a.tables = map[bound]int64{}, map[bound]int64{}, map[string]string{}
	for _, t := range p.Preview {
		a.most[bound{t.Table, t.Action}] = t.Rows
	}
	for _, j := range jobs {
		a.tables[j.Relation] = j.Table.Quoted()
	}
	for relation, rows := range gone {
		a.taken[a.of(relation)] += rows
	}
}

// of is the table of a relation that rows are deleted from.
func (a *bounded) of(relation string) bound {
	if table, ok := a.tables[relation]; ok {
		return bound{table, Delete}
	}
	return bound{relation, Delete}
}

// Write implements Journal.
func (a *bounded) Write(ctx context.Context, b *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	rows := map[bound]int64{}
	for _, s := range d.Space {
		rows[a.of(s.Relation)] += s.Rows
	}
	if d.Updated > 0 {
		rows[bound{a.updates, Update}] += d.Updated
	}
	if err := a.take(rows); err != nil {
		return nil, err
	}
	written, err := a.Journal.Write(ctx, b, d)
	if err != nil {
		a.giveBack(rows)
		return nil, err
	}
	return func(err error) error {
		if err != nil {
			a.giveBack(rows)
		}
		return written(err)
	}, nil
}

func (a *bounded) take(rows map[bound]int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, n := range rows {
		if most := allowed(a.most[of]); a.taken[of]+n > most {
			return &RefusedError{PlanExceeded, map[string]string{"table": of.table, "planned": fmt.Sprint(a.most[of])},
				fmt.Sprintf("%s: the plan has %d rows to %s, and more than %d are due: stopped before these", of.table, a.most[of], strings.ToLower(string(of.action)), most)}
		}
	}
	for of, n := range rows {
		a.taken[of] += n
	}
	return nil
}

func (a *bounded) giveBack(rows map[bound]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, n := range rows {
		a.taken[of] -= n
	}
}
