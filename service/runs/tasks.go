package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// TaskList has the tasks in the order of a run: built-in tasks, then external ones. Policies come before the built-in
// task that vacuums.
type TaskList struct {
	// NoCampaign means that the database is not Campaign's, so that there are no built-in tasks.
	NoCampaign bool
	Tasks      []rules.Task
	// External has the external tasks, by name.
	External map[string]external.Task
}

func (l TaskList) Names() (names []string) {
	for _, t := range l.Tasks {
		names = append(names, t.Name)
	}
	return names
}

func (l TaskList) Unknown(name string) string {
	return fmt.Sprintf("unknown task %.64q%s", name, l.Similar(name))
}

// Similar returns a hint for the end of an error about an unknown task. It also finds policies that were named without
// their prefix.
func (l TaskList) Similar(name string) string {
	return cmp.Or(flags.Similar(name, l.Names()), flags.Similar(policy.Prefix+name, l.Names()))
}

// Choose returns the given tasks, or all that are not disabled if none is given. It leaves out the tasks to skip.
func (l TaskList) Choose(given, skip []string) (names []string) {
	for _, t := range l.Tasks {
		chosen := slices.Contains(given, t.Name) || (len(given) == 0 && !l.Disabled(t.Name))
		skipped := slices.Contains(skip, t.Name) || (t.Kind == rules.Policy && slices.Contains(skip, policy.All))
		if chosen && !skipped {
			names = append(names, t.Name)
		}
	}
	return names
}

// Disabled reports whether a task is disabled. Such a task runs only in dry runs that name it.
func (l TaskList) Disabled(name string) bool {
	t, _ := l.Find(name)
	return t.Disabled || l.External[name].Disabled
}

func (l TaskList) Find(name string) (t rules.Task, ok bool) {
	i := slices.IndexFunc(l.Tasks, func(t rules.Task) bool { return t.Name == name })
	if i < 0 {
		return t, false
	}
	return l.Tasks[i], true
}

type TaskSource struct {
	Profile Profile
	// External provides the external tasks; nil if there are none.
	External external.Source
}

func (s TaskSource) Read(ctx context.Context, db campaign.Querier) (TaskList, error) {
	stored, err := store.ListPolicies(ctx, db)
	if err != nil {
		return TaskList{}, err
	}
	return s.With(ctx, db, stored)
}

// With is like Read, but uses the given policies instead of the stored ones.
func (s TaskSource) With(ctx context.Context, db campaign.Querier, given []store.Policy) (TaskList, error) {
	l := TaskList{External: map[string]external.Task{}}
	var err error
	if l.NoCampaign, err = s.Profile.NoCampaign(ctx, db); err != nil {
		return l, err
	}
	if !l.NoCampaign {
		l.Tasks = slices.Clone(tasks.Pipeline)
	}
	ofPolicies, err := orderPolicies(ctx, db, given)
	if err != nil {
		return l, err
	}
	at := slices.IndexFunc(l.Tasks, func(t rules.Task) bool { return t.Name == rules.StatisticsTask })
	l.Tasks = slices.Insert(l.Tasks, max(at, 0), ofPolicies...)
	if s.External == nil {
		return l, nil
	}
	more, err := s.External(ctx, db)
	for _, t := range more {
		l.Tasks = append(l.Tasks,
			rules.Task{Name: t.Name, Kind: rules.External, Title: t.Title, Description: t.Description})
		l.External[t.Name] = t
	}
	return l, err
}

// Kinds returns the kinds of tasks that this replica can run.
func (s TaskSource) Kinds() []string {
	kinds := []string{rules.BuiltIn.String(), rules.Policy.String()}
	if s.External != nil {
		kinds = append(kinds, rules.External.String())
	}
	return kinds
}

// Resolve returns the tasks with these names. A task that was removed after the run was requested has nothing to
// do.
func (s TaskSource) Resolve(
	ctx context.Context, db campaign.Querier, names []string,
) (chosen []rules.Task, l TaskList, err error) {
	if l, err = s.Read(ctx, db); err != nil {
		return nil, l, fmt.Errorf("%w: %w", cleanup.ErrLost, err)
	}
	for _, name := range names {
		t, ok := l.Find(name)
		if !ok {
			t = rules.Task{Name: name}
			l.External[name] = external.Task{Name: name}
		}
		chosen = append(chosen, t)
	}
	return chosen, l, nil
}

// selectKeepers finds, among the tables with the names $1 in lower case, those with foreign keys that keep rows of
// other tables from being deleted. As in campaign.Table.Keeping, a table includes those whose rows are deleted along
// with its rows.
const selectKeepers = `WITH RECURSIVE key AS (
  SELECT COALESCE(pg_partition_root(k.conrelid), k.conrelid)::oid AS child,
    COALESCE(pg_partition_root(k.confrelid), k.confrelid)::oid AS parent, k.confdeltype AS action
  FROM pg_constraint k WHERE k.contype = 'f' AND ` + sqlexpr.Enforced + `
), going (top, name, oid) AS (
  SELECT oid, lower(relname), oid FROM pg_class WHERE lower(relname) = ANY ($1::text[]) AND relkind IN ('r', 'p')
  UNION SELECT g.top, g.name, k.child FROM going g JOIN key k ON k.parent = g.oid AND k.action = 'c'
)
SELECT DISTINCT keeping.name, kept.name
FROM key k JOIN going kept ON kept.oid = k.parent JOIN going keeping ON keeping.oid = k.child
WHERE k.action IN ('a', 'r') AND keeping.top <> kept.top AND k.child <> kept.top`

// readKeepers returns, for each table, those of the given ones whose rows keep its rows from being deleted, directly or
// through others. All names are in lower case.
func readKeepers(ctx context.Context, db campaign.Querier, names []string) (map[string]map[string]bool, error) {
	keepers := map[string]map[string]bool{}
	if len(names) < 2 {
		return keepers, nil
	}
	direct := map[string][]string{}
	var child, parent string
	rows, _ := db.Query(ctx, selectKeepers, names)
	_, err := pgx.ForEachRow(rows, []any{&child, &parent}, func() error {
		direct[parent] = append(direct[parent], child)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the foreign keys between tables of policies: %w", err)
	}
	var add func(to map[string]bool, parent string)
	add = func(to map[string]bool, parent string) {
		for _, child := range direct[parent] {
			if !to[child] {
				to[child] = true
				add(to, child)
			}
		}
	}
	for parent := range direct {
		keepers[parent] = map[string]bool{}
		add(keepers[parent], parent)
	}
	return keepers, nil
}

// orderPolicies orders policies by name, except that rows go first if their foreign keys keep other rows from being
// deleted. Otherwise only the next run could delete the others. Policies of tables that keep each other's rows stay in
// the order of their names.
func orderPolicies(ctx context.Context, db campaign.Querier, stored []store.Policy) (ordered []rules.Task, err error) {
	stored = slices.SortedFunc(slices.Values(stored), func(a, b store.Policy) int { return cmp.Compare(a.Name, b.Name) })
	var names []string
	for _, p := range stored {
		names = append(names, strings.ToLower(campaign.BaseName(p.Table)))
	}
	keepers, err := readKeepers(ctx, db, names)
	if err != nil {
		return nil, err
	}
	placed := make([]bool, len(stored))
	var place func(i int)
	place = func(i int) {
		placed[i] = true
		for k, name := range names {
			if !placed[k] && keepers[names[i]][name] && !keepers[name][names[i]] {
				place(k)
			}
		}
		ordered = append(ordered, stored[i].Task())
	}
	for i := range stored {
		if !placed[i] {
			place(i)
		}
	}
	return ordered, nil
}

// Profile selects the tasks for a database.
type Profile string

const (
	// ProfileAuto means ProfileCampaign if the database has tables of the application, otherwise ProfileNone.
	ProfileAuto Profile = "auto"
	// ProfileCampaign has the built-in tasks, which fail without the application's tables.
	ProfileCampaign Profile = "campaign"
	// ProfileNone has none of these tasks.
	ProfileNone Profile = "none"
)

var Profiles = []string{string(ProfileAuto), string(ProfileCampaign), string(ProfileNone)}

func (p *Profile) String() string { return string(*p) }

func (p *Profile) Set(text string) error {
	for _, name := range Profiles {
		if text == name {
			*p = Profile(name)
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(Profiles, ", "))
}

func (*Profile) Type() string { return "string" }

// NoCampaign reports whether the profile has no built-in tasks for this database.
func (p Profile) NoCampaign(ctx context.Context, db campaign.Querier) (bool, error) {
	switch p {
	case ProfileNone:
		return true, nil
	case ProfileAuto, "":
		known, err := campaign.HasKnownTables(ctx, db)
		return !known, err
	}
	return false, nil
}
