package execute

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Planned is what a dry run has found of a task, for a run that does that and no more.
type Planned struct {
	// Basis is what it was found by.
	Basis Basis `json:"Basis"`
	// Set is the ids of the task's set, Stays are those of them that stay; Dropped are the quoted names of the tables
	// that go.
	Set     []int64  `json:"Set,omitempty"`
	Stays   []int64  `json:"Stays,omitempty"`
	Dropped []string `json:"Dropped,omitempty"`
	// Kept are those of the set of which nothing goes, and CoalescedFrom is from when on the task coalesces rows; nil:
	// it does not. A dry run that goes on elsewhere needs them.
	Kept          []int64    `json:"Kept,omitempty"`
	CoalescedFrom *time.Time `json:"CoalescedFrom,omitempty"`
	// Preview is what it would do, table by table.
	Preview []TablePreview `json:"-"`
}

// Basis is what decides, beside the rows and the clock, what a run does.
type Basis struct {
	// Version is that of the program.
	Version string `json:"Version"`
	// Options are the delays in force, by name, Mappings what the delivery mappings name, by column.
	Options  map[string]string   `json:"Options"`
	Mappings map[string][]string `json:"Mappings"`
	// MidSourcing, Related and Include are what the operator has configured.
	MidSourcing []string `json:"MidSourcing"`
	Related     []string `json:"Related"`
	Include     []string `json:"Include"`
	// Outside is what tasks on other databases go by, by their names.
	Outside map[string]string `json:"Outside,omitempty"`
	// Holds are the holds in force.
	Holds []string `json:"Holds,omitempty"`
}

// basis is the current one.
func (d *database) basis() Basis {
	b := Basis{
		Version:  "unknown",
		Options:  d.given.Options.InForce(),
		Mappings: d.given.Catalog.Mappings(),
		Holds:    d.given.Holds.Names,
		Related:  slices.Sorted(slices.Values(d.RelatedListTables)),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = info.Main.Version
	}
	for name, o := range d.Outside {
		if b.Outside == nil {
			b.Outside = map[string]string{}
		}
		b.Outside[name] = o.Basis
	}
	for _, name := range slices.Sorted(maps.Keys(d.MidSourcing.Databases)) {
		b.MidSourcing = append(b.MidSourcing, name+"="+placeOf(d.MidSourcing.Databases[name]))
	}
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

// placeOf is where a database is, without the credentials: another one has other rows, whatever its name is here.
func placeOf(pool *pgxpool.Pool) string {
	c := pool.Config().ConnConfig
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if host := fmt.Sprintf("%s:%d", f.Host, f.Port); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, ",") + "/" + c.Database
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
	for _, name := range either(b.Outside, now.Outside) {
		differs("the task "+name, cmp.Or(b.Outside[name], "none"), cmp.Or(now.Outside[name], "none"))
	}
	for _, column := range either(b.Mappings, now.Mappings) {
		differs("NmsDeliveryMapping."+column, named(b.Mappings[column]), named(now.Mappings[column]))
	}
	if named(b.Holds) != named(now.Holds) { // which only admins may see
		what = append(what, "the holds have changed")
	}
	differs("--mid-sourcing", named(b.MidSourcing), named(now.MidSourcing))
	differs("--related-list-table", named(b.Related), named(now.Related))
	differs("--include", named(b.Include), named(now.Include))
	return what
}

// either are the keys of two maps, in order.
func either[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
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
	// Trips are the guards that refuse it.
	Trips []Trip
}

func (e *RefusedError) Error() string { return e.Message }

// Stale is the refusal of a plan.
func Stale(what ...string) *RefusedError {
	changed := strings.Join(what, "; ")
	return &RefusedError{
		Reason:   PlanStale,
		Metadata: map[string]string{"changed": changed},
		Message:  "the plan does not hold any longer: " + changed,
	}
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
	p.Kept = without(p.Set, t.preview.worked[name])
	if from, some := t.preview.coalesced[name]; some {
		if from.Before(time.Time{}) { // which JSON does not have
			from = time.Time{}
		}
		p.CoalescedFrom = &from
	}
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
