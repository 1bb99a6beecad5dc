package tasks_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// months creates four months of events, with 30 rows each. The first three, and 14 rows of January, are before 15
// January 2026.
const months = `CREATE TABLE event (id int, at timestamptz NOT NULL) PARTITION BY RANGE (at);
	CREATE TABLE event_2025_10 PARTITION OF event FOR VALUES FROM ('2025-10-01Z') TO ('2025-11-01Z');
	CREATE TABLE event_2025_11 PARTITION OF event FOR VALUES FROM ('2025-11-01Z') TO ('2025-12-01Z');
	CREATE TABLE event_2025_12 PARTITION OF event FOR VALUES FROM ('2025-12-01Z') TO ('2026-01-01Z');
	CREATE TABLE event_2026_01 PARTITION OF event FOR VALUES FROM ('2026-01-01Z') TO ('2026-02-01Z');
	INSERT INTO event SELECT i, m + i * interval '1 day' - interval '12 hours' FROM generate_series(1, 30) i,
		unnest('{2025-10-01Z, 2025-11-01Z, 2025-12-01Z, 2026-01-01Z}'::timestamptz[]) m;`

func oldEvents(partitions purge.Partitions) policy.Policy {
	return policy.Policy{
		Name: "old", Table: "event", OlderThan: &policy.OlderThan{Column: "at", Days: new(45)}, Partitions: partitions,
	}
}

// A policy drops, detaches or empties partitions that end before the cutoff, as its setting says. Preview and run count
// the same partitions and rows.
func TestPartitionsOfPolicies(t *testing.T) {
	t.Parallel()
	const list = "[event_2025_10 event_2025_11 event_2025_12]"
	tests := map[purge.Partitions]struct {
		preview          string
		says             string // of each partition
		removed, deleted int64
		parts, kept      int64 // partitions and rows of event afterwards
		rows             int64 // rows of event_2025_10; -1 if it no longer exists
	}{
		"":                     {"DELETE 104 3 " + list, "dropped", 3, 90 + 14, 1, 16, -1},
		purge.DropPartitions:   {"DELETE 104 3 " + list, "dropped", 3, 90 + 14, 1, 16, -1},
		purge.DeleteRows:       {"DELETE 104 0 []", "", 0, 90 + 14, 4, 16, 0},
		purge.DetachPartitions: {"DETACH 90 3 " + list, "detached", 3, 0, 1, 30, 30},
	}
	db := pgtest.Empty(t)
	var policies []policy.Policy
	for partitions := range tests {
		schema := inSchema(db, "by "+string(partitions), months)
		p := oldEvents(partitions)
		p.Name, p.Table = schema, schema+".event"
		policies = append(policies, p)
	}
	do := func(isDry bool) *journal {
		j, err := runPolicies(t, db, isDry, policies...)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	count := func(j *journal, p policy.Policy) {
		j.checkState(t, p.TaskName(), cleanup.Succeeded)
		j.checkDeleted(t, p.TaskName(), tests[p.Partitions].deleted)
		if got, want := j.removed[p.TaskName()], tests[p.Partitions].removed; got != want {
			t.Errorf("%s counted %d partitions, want %d", p.Name, got, want)
		}
	}
	const partitionsOf = "SELECT count(*) FROM pg_inherits WHERE inhparent = $1::text::regclass"
	dry := do(true)
	for _, p := range policies {
		count(dry, p)
		checkCount(t, db, 4, partitionsOf, p.Table)
		var tables []string
		for _, shown := range dry.previews[p.TaskName()] {
			tables = append(tables, fmt.Sprintf("%s %d %d %v", shown.Action, shown.Rows, shown.Partitions, shown.Names))
		}
		if want := tests[p.Partitions].preview; !slices.Equal(tables, []string{want}) {
			t.Errorf("the preview of %s is %q, want %q", p.Name, tables, want)
		}
	}
	j, again := do(false), do(false)
	for _, p := range policies {
		c := tests[p.Partitions]
		count(j, p)
		if c.says != "" {
			said := regexp.MustCompile("INFO event: 3 partitions have only obsolete rows.*" + c.says + ".*event_2025_11")
			if log := dry.log(p.TaskName()); !said.MatchString(log) {
				t.Errorf("the dry run says %q of %s", log, p.Name)
			}
			if log := j.log(p.TaskName()); !strings.Contains(log, c.says+" partition event_2025_11") {
				t.Errorf("the run says %q of %s, want that it %s a partition", log, p.Name, c.says)
			}
		}
		checkCount(t, db, c.parts, partitionsOf, p.Table)
		checkCount(t, db, c.kept, "SELECT count(*) FROM "+p.Table)
		if c.rows < 0 {
			checkCount(t, db, 0, "SELECT count(to_regclass($1))", p.Table+"_2025_10")
		} else {
			checkCount(t, db, c.rows, "SELECT count(*) FROM "+p.Table+"_2025_10")
		}
		if again.deleted[p.TaskName()]+again.removed[p.TaskName()] != 0 {
			t.Errorf("the next run did something: %v %v", again.deleted, again.removed)
		}
	}
}

// A partition that ends before the cutoff and cannot be detached is retained, with the reason: in the run and in its
// preview. Its rows are never deleted.
func TestPartitionsThatCannotBeDetached(t *testing.T) {
	t.Parallel()
	for problem, c := range map[string]struct {
		setup   string
		holds   rules.Holds
		foreign bool // the role is not the owner
		late    bool // only a run meets it
		locked  string
	}{
		"foreign keys refer to it": {setup: `ALTER TABLE event_2025_10 ADD UNIQUE (id);
			CREATE TABLE note (event int REFERENCES event_2025_10 (id))`},
		"the role is not a member of the table's owner": {foreign: true},
		"lock timeout": {late: true, locked: "SELECT FROM event"},
	} {
		t.Run(problem, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(months + `ALTER TABLE event DETACH PARTITION event_2025_11; ALTER TABLE event DETACH PARTITION event_2025_12;`)
			db.Do(c.setup)
			as := db
			if c.foreign {
				role := db.Role("cleaner")
				db.Do("GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + role)
				as = db.For(role)
			}
			if c.locked != "" {
				db.Hold(c.locked)
			}
			p := oldEvents(purge.DetachPartitions)
			for _, isDry := range []bool{true, false} {
				j, err := runPolicies(t, as, isDry, p)
				if err != nil {
					t.Fatal(err)
				}
				j.checkDeleted(t, p.TaskName(), 0)
				if isDry && c.late {
					continue
				}
				j.checkRetained(t, p.TaskName(), purge.Retained{Tables: 1})
				j.checkLog(t, "WARNING", "partition event_2025_10 ends before the cutoff but is not detached", problem)
				if got := j.removed[p.TaskName()]; got != 0 {
					t.Errorf("%d partitions were counted", got)
				}
			}
			checkCount(t, db, 60, "SELECT count(*) FROM event")
		})
	}
}

// A preview says why partitions are emptied rather than dropped.
func TestPartitionsThatCannotBeDropped(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner")
	db.Do(months + "GRANT SELECT, DELETE ON ALL TABLES IN SCHEMA public TO " + role)
	p := oldEvents("")
	j, err := runPolicies(t, db.For(role), true, p)
	if err != nil {
		t.Fatal(err)
	}
	shown := j.previews[p.TaskName()][0]
	remarks := strings.Join(shown.Remarks, "; ")
	const why = "emptied rather than dropped: the role is not its owner"
	if j.removed[p.TaskName()] != 0 || !strings.Contains(remarks, why) || !strings.HasPrefix(shown.Rule, "at older") {
		t.Errorf("%d; %s; %s", j.removed[p.TaskName()], remarks, shown.Rule)
	}
}

// A run does not detach a partition that is not in its saved plan.
func TestPartitionAttachedAfterAPlan(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(months + "ALTER TABLE event DETACH PARTITION event_2025_11")
	p := oldEvents(purge.DetachPartitions)
	p.Enabled = true
	dry, err := runPolicies(t, db, true, p)
	if err != nil {
		t.Fatal(err)
	}
	db.Do("ALTER TABLE event ATTACH PARTITION event_2025_11 FOR VALUES FROM ('2025-11-01Z') TO ('2025-12-01Z')")
	j := newJournal(db)
	if err := runWith(t, j, func(c *cleanup.Config) {
		c.NoCampaign, c.Pipeline, c.Todo = true, []rules.Task{p.Task()}, []rules.Task{p.Task()}
		c.SavedPlan = map[string]cleanup.SavedTask{p.TaskName(): dry.planned[p.TaskName()]}
	}); err != nil {
		t.Fatal(err)
	}
	if got := j.removed[p.TaskName()]; got != 2 {
		t.Errorf("%d partitions were detached, not the 2 of the plan", got)
	}
	j.checkLog(t, "WARNING", "event_2025_11", "it is not in the saved plan")
}

// Two policies of one table count a partition once. The first one decides what becomes of it.
func TestPoliciesOfOnePartitionedTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(months)
	first, second := oldEvents(purge.DetachPartitions), oldEvents("")
	first.Name = "a"
	for _, isDry := range []bool{true, false} {
		j, err := runPolicies(t, db, isDry, first, second)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int64{j.removed[first.TaskName()], j.removed[second.TaskName()]}; got != [2]int64{3, 0} {
			t.Errorf("%d partitions were counted (dry run: %t)", got, isDry)
		}
		j.checkDeleted(t, second.TaskName(), 14)
	}
}

// A policy that cannot detach partitions by its date is refused when it is set.
func TestPoliciesThatCannotDetach(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(months + `CREATE TABLE plain (at timestamptz); CREATE TABLE listed (at timestamptz) PARTITION BY LIST (at);
		CREATE TABLE other (at timestamptz, id int) PARTITION BY RANGE (id);
		CREATE TABLE pair (at timestamptz, id int) PARTITION BY RANGE (at, id);
		CREATE DOMAIN day AS date; CREATE TABLE domained (at day) PARTITION BY RANGE (at)`)
	for table, refused := range map[string]bool{
		"event": false, "plain": true, "listed": true, "other": true, "pair": true, "domained": true,
	} {
		p := oldEvents(purge.DetachPartitions)
		p.Table = table
		err := checkPolicy(t, db, p)
		if refused != (err != nil) || (refused && !strings.Contains(err.Error(), "is not partitioned by range of at alone")) {
			t.Errorf("%s: %v", table, err)
		}
	}
	checkError(t, checkPolicy(t, db.For(db.Role("cleaner")), oldEvents(purge.DetachPartitions)), "policy.partitions",
		"only the owner", "GRANT neolane TO test_")
	filtered, unknown := oldEvents(purge.DetachPartitions), oldEvents("MOVE")
	filtered.Filters = []policy.Filter{{Column: "id", Op: "EQUAL", Values: []string{"1"}}}
	checkError(t, filtered.Validate(), "policy.partitions", "only with olderThan alone")
	checkError(t, unknown.Validate(), "policy.partitions", "is unknown")
}

// A partition on hold (itself, its table, or everything) stays, even if it is empty.
func TestEmptyPartitionsOnHold(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	holds := rules.Holds{Names: []string{"a"}}
	var policies []policy.Policy
	left := map[string]int64{} // partitions that stay although they could be removed, by policy
	for _, partitions := range []purge.Partitions{purge.DropPartitions, purge.DetachPartitions} {
		for table, of := range map[string]int64{"event": 3, "event_2025_10": 1} {
			schema := inSchema(db, fmt.Sprint(table, partitions), months+"DELETE FROM event WHERE at < '2025-11-01Z'")
			holds.Tables = append(holds.Tables, rules.HeldTable{Schema: schema, Name: table})
			p := oldEvents(partitions)
			p.Name, p.Table = schema, schema+".event"
			left[p.Name], policies = of, append(policies, p)
		}
	}
	for _, everything := range []bool{true, false} {
		for _, isDry := range []bool{true, false} {
			j := newJournal(db)
			j.holds = func() rules.Holds {
				holds.Everything = everything
				return holds
			}
			if err := runPoliciesWith(t, j, isDry, policies...); err != nil {
				t.Fatal(err)
			}
			for _, p := range policies {
				want := 3 - left[p.Name]
				if everything {
					want = 0
				}
				if got := j.removed[p.TaskName()]; got != want {
					t.Errorf("%s, everything: %t, dry run: %t: %d partitions were counted, want %d", p.Name, everything, isDry,
						got, want)
				}
			}
		}
	}
	for _, p := range policies {
		checkCount(t, db, left[p.Name], "SELECT count(*) - 1 FROM pg_inherits WHERE inhparent = $1::text::regclass", p.Table)
		checkCount(t, db, 1, "SELECT count(*) FROM pg_inherits WHERE inhrelid = $1::text::regclass", p.Table+"_2025_10")
	}
}

// A run does not warn of partitions that it has removed, neither when it counts rows on hold nor in other policies.
func TestPartitionsThatTheRunHasRemoved(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	holds := rules.Holds{Names: []string{"a hold"}}
	var policies []policy.Policy
	for _, partitions := range []purge.Partitions{purge.DropPartitions, purge.DetachPartitions} {
		schema := inSchema(db, string(partitions), months+"DELETE FROM event WHERE id = 14 AND at < '2026-01-01Z'")
		held := heldRows(schema+".event", [3]string{"id", "int4", "14"}).Rows[0]
		held.OID = uint32(db.Int("SELECT $1::text::regclass::oid::int8", schema+".event"))
		holds.Rows = append(holds.Rows, held)
		first, second := oldEvents(partitions), oldEvents(purge.DeleteRows)
		first.Name, second.Name = schema+"-first", schema+"-second"
		first.Table, second.Table = schema+".event", schema+".event"
		policies = append(policies, first, second)
	}
	j := newJournal(db)
	j.holds = func() rules.Holds { return holds }
	if err := runPoliciesWith(t, j, false, policies...); err != nil {
		t.Fatal(err)
	}
	for i, p := range policies {
		if got := j.removed[p.TaskName()]; i%2 == 0 && got != 3 {
			t.Errorf("%s removed %d partitions, want 3", p.Name, got)
		}
		if i%2 == 1 {
			j.checkRetained(t, p.TaskName(), purge.Retained{OnHold: 1})
		}
	}
	j.checkNoLog(t, "WARNING")
}

// Old rows of a default partition, which no policy can detach, are counted by the preview and by the run.
func TestDefaultPartitionIsNeverDetached(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(months + `CREATE TABLE event_rest PARTITION OF event DEFAULT;
		INSERT INTO event SELECT i, timestamptz '2020-01-01' + i % 2 * interval '20 years' FROM generate_series(1, 14) i`)
	p := oldEvents(purge.DetachPartitions)
	const stay = "7 rows of the default partition event_rest are older than the cutoff, and stay"
	for _, isDry := range []bool{true, false} {
		j, err := runPolicies(t, db, isDry, p)
		if err != nil {
			t.Fatal(err)
		}
		j.checkLog(t, "WARNING", stay)
		if shown := j.previews[p.TaskName()]; isDry && (len(shown) != 1 || shown[0].Rows != 90 ||
			!slices.ContainsFunc(shown[0].Remarks, func(text string) bool { return strings.Contains(text, stay) })) {
			t.Errorf("the preview is %+v, want 90 rows and the remark", shown)
		}
		j.checkState(t, p.TaskName(), cleanup.Succeeded)
	}
	checkCount(t, db, 14, "SELECT count(*) FROM event_rest")
}
