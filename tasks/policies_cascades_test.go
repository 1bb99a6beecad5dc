package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// threads creates topics, half of them old, with notes that are deleted with their topic, and readers whose topic is
// set to NULL.
const threads = `CREATE TABLE topic (id int PRIMARY KEY, at timestamptz);
	CREATE TABLE note (id int PRIMARY KEY, topic int REFERENCES topic ON DELETE CASCADE);
	CREATE TABLE reader (id int PRIMARY KEY, topic int REFERENCES topic ON DELETE SET NULL);
	CREATE INDEX ON note (topic); CREATE INDEX ON reader (topic);
	INSERT INTO topic SELECT i, '2020-01-01' FROM generate_series(1, 100) i;
	INSERT INTO topic SELECT i, '2026-02-28' FROM generate_series(101, 200) i;
	INSERT INTO note SELECT i, 1 + i % 150 FROM generate_series(1, 3000) i;
	INSERT INTO reader SELECT i, 51 + i % 100 FROM generate_series(1, 100) i; ANALYZE`

var oldTopics = policy.Policy{
	Name: "topics", Table: "topic", OlderThan: &policy.OlderThan{Column: "at", Days: new(365)},
}

// What foreign keys do to rows of other tables is in the preview and in the result, table by table, and in the log.
func TestCascades(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(threads)
	dry, err := runPolicies(t, db, true, oldTopics)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{}
	for _, p := range dry.previews["policy/topics"] {
		shown = append(shown, fmt.Sprint(p.Table, " ", p.Action, " ", p.Rows, " ", p.Cascaded))
	}
	slices.Sort(shown)
	want := []string{
		`"public"."note" DELETE 2000 2000`, `"public"."reader" UPDATE 50 50`, `"public"."topic" DELETE 100 0`,
	}
	if !slices.Equal(shown, want) {
		t.Errorf("the preview is %q, want %q", shown, want)
	}
	j, err := runPolicies(t, db, false, oldTopics)
	if err != nil {
		t.Fatal(err)
	}
	const name = "policy/topics"
	if j.deleted[name] != 100 || j.cascaded[name] != 2_000 || j.updated[name] != 50 {
		t.Errorf("%d rows were deleted, %d with them, and %d changed", j.deleted[name], j.cascaded[name],
			j.updated[name])
	}
	byTable := map[string][3]int64{}
	for _, d := range j.batches {
		for _, s := range d.Space {
			sum := byTable[s.Relation]
			byTable[s.Relation] = [3]int64{sum[0] + s.Rows, sum[1] + s.Updated, sum[2] + s.Cascaded}
		}
	}
	if byTable[`"public"."note"`] != [3]int64{2_000, 0, 2_000} || byTable[`"public"."reader"`] != [3]int64{0, 50, 50} ||
		byTable[`"public"."topic"`] != [3]int64{100, 0, 0} {
		t.Errorf("by table: %v", byTable)
	}
	j.checkLog(t, `foreign keys also deleted 2000 and updated 0 rows of "public"."note"`)
}

// A batch has no more rows than the policy allows, including those that foreign keys delete, unless a single row takes
// more with it.
func TestCascadesAreInTheSizeOfABatch(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(threads + `; INSERT INTO note SELECT 10000 + i, 7 FROM generate_series(1, 700) i`)
	p := oldTopics
	p.Limit = 200
	j, err := runPolicies(t, db, false, p)
	if err != nil {
		t.Fatal(err)
	}
	above := 0
	for _, d := range j.batches {
		if d.Deleted+d.Updated+d.Cascaded > 200 {
			if above++; d.Deleted > 1 {
				t.Errorf("a batch deleted %d rows, with %d others", d.Deleted, d.Cascaded)
			}
		}
	}
	if above != 1 || db.Int("SELECT count(*) FROM topic") != 100 {
		t.Errorf("%d batches are too large, want the one of the topic with 720 notes", above)
	}
}

// Guards also judge a table whose rows only foreign keys delete, and a saved plan must include it.
func TestChildrenOfOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(threads)
	onTopics := func(change func(c *cleanup.Config)) func(c *cleanup.Config) {
		return func(c *cleanup.Config) {
			c.NoCampaign, c.Pipeline, c.Todo = true, nil, nil
			p := oldTopics
			p.Enabled = true
			c.Pipeline, c.Todo = append(c.Pipeline, p.Task()), append(c.Todo, p.Task())
			change(c)
		}
	}
	j := newJournal(db)
	j.history = &guard.History{
		Limits: guard.Limits{MinRows: 500, MaxSharePercent: 60}, Proven: oldTopics.Basis(),
	}
	err := runWith(t, j, onTopics(func(*cleanup.Config) {}))
	if refusal := (*failure.Refusal)(nil); !errors.As(err, &refusal) || !strings.Contains(err.Error(), `"note"`) ||
		db.Int("SELECT count(*) FROM note") != 3_000 {
		t.Errorf("two thirds of the notes would go: %v", err)
	}

	dry := newJournal(db)
	if err := runWith(t, dry, onTopics(func(c *cleanup.Config) { c.DryRun = true })); err != nil {
		t.Fatal(err)
	}
	saved := dry.planned
	plan := saved["policy/topics"]
	plan.Tables = slices.DeleteFunc(slices.Clone(plan.Tables),
		func(p cleanup.PreviewTable) bool { return strings.Contains(p.Table, "note") })
	saved["policy/topics"] = plan
	_, err = run(t, db, onTopics(func(c *cleanup.Config) { c.SavedPlan = saved }))
	if refusal := (*failure.Refusal)(nil); !errors.As(err, &refusal) || refusal.Reason != failure.ReasonPlanExceeded ||
		db.Int("SELECT count(*) FROM note") != 3_000 {
		t.Errorf("the plan does not show the notes: %v", err)
	}
}

// If the application inserts a row that refers to an old one while a batch deletes the old one, the batch is rolled
// back, and both rows stay.
func TestARowBelowAnOldOneInMidBatch(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE comment (id int PRIMARY KEY, at timestamptz, parent int REFERENCES comment ON DELETE CASCADE);
		INSERT INTO comment SELECT i, '2020-01-01', nullif(i % 10, 0) FROM generate_series(1, 50) i;
		CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO comment SELECT 1000 + OLD.id, '2026-02-28', OLD.id WHERE OLD.id = 7; RETURN OLD; END $$;
		CREATE TRIGGER late BEFORE DELETE ON comment FOR EACH ROW EXECUTE FUNCTION late()`)
	p := policy.Policy{Name: "old", Table: "comment", OlderThan: &policy.OlderThan{Column: "at", Days: new(365)}}
	j, _ := runPolicies(t, db, false, p)
	if left := db.Int("SELECT count(*) FROM comment"); left != 1 || j.retained["policy/old"].Failed != 1 {
		t.Errorf("%d comments are left, retained %+v; log %q", left, j.retained["policy/old"], j.logs)
	}
	if n := db.Int("SELECT count(*) FROM comment WHERE id = 7"); n != 1 {
		t.Error("the comment with a new reply is gone")
	}
}

// Rows whose foreign key a sweep clears move to wherever there is room, ahead of the sweep or behind it. The run finds
// them, however often they move, and deletes what the dry run counted.
func TestRowsThatClearedKeysMove(t *testing.T) {
	t.Parallel()
	const root = "ALTER TABLE entry ADD root int REFERENCES entry ON DELETE SET NULL; CREATE INDEX ON entry (root);" +
		"UPDATE entry SET root = id - 2 WHERE id > 2;"
	db := pgtest.Empty(t)
	var policies []policy.Policy
	for name, more := range map[string]string{
		"a scan": "", "an index": "CREATE INDEX ON entry (at);",
		"two keys": root, "two keys and an index": root + "CREATE INDEX ON entry (at);",
	} {
		schema := inSchema(db, name,
			`CREATE TABLE entry (id int PRIMARY KEY, at date, parent int REFERENCES entry ON DELETE SET NULL, pad text)
				WITH (autovacuum_enabled = false);
			INSERT INTO entry SELECT -i, '2026-02-28', NULL, repeat('x', 200) FROM generate_series(1, 4000) i;
			INSERT INTO entry SELECT i, '2020-01-01', nullif(i - 1, 0), repeat('x', 200) FROM generate_series(1,
				60) i; `+more+"CREATE INDEX ON entry (parent); DELETE FROM entry WHERE id % 2 = 0 AND id < 0; ANALYZE entry")
		p := policy.Policy{
			Name: schema, Table: schema + ".entry", Limit: 3, OlderThan: &policy.OlderThan{Column: "at", Days: new(365)},
		}
		db.Do("VACUUM " + p.Table)
		policies = append(policies, p)
	}
	dry, j := previewAndRun(t, db, policies...)
	for _, p := range policies {
		dry.checkDeleted(t, p.TaskName(), 60)
		j.checkDeleted(t, p.TaskName(), 60)
		checkCount(t, db, 2_000, "SELECT count(*) FROM "+p.Table)
	}
}

// changer is a journal that changes the database once a task has been judged, before it deletes.
type changer struct {
	*journal
	sql string
}

func (c *changer) At(object string, expected int64) {
	c.journal.At(object, expected)
	if !strings.HasSuffix(object, "counted first") {
		c.db.Do(c.sql)
	}
}

// A rule that has never run deletes nothing without a preview, even if nothing matched when its guard counted.
func TestWhatNoPreviewShowed(t *testing.T) {
	t.Parallel()
	const events = `CREATE TABLE event (id int, retired timestamptz) PARTITION BY RANGE (retired);
		CREATE TABLE event_2020 PARTITION OF event FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');`
	for name, c := range map[string]struct {
		setUp, then, table string
		partitions         purge.Partitions
	}{
		"rows": {
			setUp: `CREATE TABLE vehicle (id int PRIMARY KEY, retired timestamptz);
				INSERT INTO vehicle SELECT i, '2020-01-01' FROM generate_series(1, 9) i;
				CREATE TABLE route (vehicle int REFERENCES vehicle); INSERT INTO route SELECT id FROM vehicle`,
			then:  "DELETE FROM route",
			table: "vehicle",
		},
		"an empty partition": {setUp: events, table: "event"},
		"a detached partition": {
			setUp: events + "INSERT INTO event VALUES (1, '2020-02-01')", table: "event", partitions: purge.DetachPartitions,
		},
		"an empty detached partition": {setUp: events, table: "event", partitions: purge.DetachPartitions},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "rows", "an empty partition", "a detached partition")
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(c.setUp)
			p := policy.Policy{
				Name: "p", Table: c.table, Enabled: true, Partitions: c.partitions,
				OlderThan: &policy.OlderThan{Column: "retired", Days: new(30)},
			}
			state := "SELECT count(*) + (SELECT count(*) FROM pg_inherits) FROM " + c.table // rows and partitions
			before := db.Int(state)
			j := &changer{newJournal(db), c.then}
			j.history = &guard.History{}
			err := cleanup.Execute(t.Context(), cleanup.Config{
				Pool: db.Pool, Now: now, NoCampaign: true, Pipeline: []rules.Task{p.Task()}, Todo: []rules.Task{p.Task()},
			}, j)
			checkError(t, err, `policy of "public"."`+c.table+`": this rule has never run`)
			if after := db.Int(state); after != before {
				t.Errorf("%d rows and partitions are left, want %d", after, before)
			}
		})
	}
}
