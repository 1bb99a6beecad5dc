package tasks_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// undo does a run or a dry run of policies, with a trash of at most maxBytes.
func undo(t *testing.T, j *journal, maxBytes int64, isDry bool, policies ...policy.Policy) error {
	t.Helper()
	return runWith(t, j, func(c *cleanup.Config) {
		c.ID, c.TrashMaxBytes = uuid.NewString(), maxBytes
		c.DryRun, c.NoCampaign, c.Pipeline, c.Todo = isDry, true, nil, nil
		for _, p := range policies {
			p.Enabled, p.Undo = true, new(time.Hour)
			c.Pipeline, c.Todo = append(c.Pipeline, p.Task()), append(c.Todo, p.Task())
		}
	})
}

func trashBytes(tables []cleanup.PreviewTable) (sum int64) {
	for _, p := range tables {
		sum += p.TrashBytes
	}
	return sum
}

var oldRows = policy.Policy{Name: "old", Table: "t", OlderThan: &policy.OlderThan{Column: "at", Days: new(365)}}

// A run puts about as many bytes into the trash as the dry run estimated.
func TestTrashOfAPreview(t *testing.T) {
	t.Parallel()
	const rows = "FROM generate_series(1, 50000) i"
	const page = "(SELECT string_agg(md5(concat(i, j)), '') FROM generate_series(1, 150) j)" // does not compress
	for name, setup := range map[string]string{
		"narrow": `CREATE TABLE t (id int PRIMARY KEY, at timestamptz);
			INSERT INTO t SELECT i, '2020-01-01' ` + rows,
		"many empty columns": `CREATE TABLE t (id int PRIMARY KEY, at timestamptz, a text, b text, c text, d text);
			INSERT INTO t SELECT i, '2020-01-01', NULL, NULL, CASE WHEN i % 10 = 0 THEN repeat('x', 300) END ` + rows,
		"half of it": `CREATE TABLE t (id int PRIMARY KEY, at timestamptz, word text);
			INSERT INTO t SELECT i, timestamptz '2020-01-01' + i % 2 * interval '6 years', md5(i::text) ` + rows,
		"bloated": `CREATE TABLE t (id int PRIMARY KEY, at timestamptz, word text);
			INSERT INTO t SELECT i, '2020-01-01', repeat(md5(i::text), 5) ` + rows + `;
			DELETE FROM t WHERE id % 10 <> 0`,
		"with TOAST": `CREATE TABLE t (id int PRIMARY KEY, at timestamptz, page text);
			INSERT INTO t SELECT i, '2020-01-01', ` + page + ` FROM generate_series(1, 2000) i`,
		"with TOAST that is mostly free": `CREATE TABLE t (id int PRIMARY KEY, at timestamptz, page text);
			INSERT INTO t SELECT i, '2020-01-01', ` + page + ` FROM generate_series(1, 4000) i;
			DELETE FROM t WHERE id % 8 <> 0`,
		"never analyzed": `CREATE TABLE t (id int PRIMARY KEY, at timestamptz, word text) WITH (autovacuum_enabled = off);
			INSERT INTO t SELECT i, '2020-01-01', md5(i::text) ` + rows,
		"with rows that foreign keys delete": `CREATE TABLE t (id int PRIMARY KEY, at timestamptz);
			INSERT INTO t SELECT i, '2020-01-01' FROM generate_series(1, 10000) i;
			CREATE TABLE line (id int PRIMARY KEY, t int REFERENCES t ON DELETE CASCADE, word text); CREATE INDEX ON line (t);
			INSERT INTO line SELECT i, 1 + i % 10000, repeat(md5(i::text), 3) ` + rows,
		"whole partitions with their indexes": `CREATE TABLE t (id int, at timestamptz NOT NULL, word text)
				PARTITION BY RANGE (at);
			CREATE TABLE t_2019 PARTITION OF t FOR VALUES FROM ('2019-01-01Z') TO ('2020-01-01Z');
			CREATE TABLE t_2020 PARTITION OF t FOR VALUES FROM ('2020-01-01Z') TO ('2027-01-01Z');
			CREATE INDEX ON t (word); CREATE INDEX ON t (id);
			INSERT INTO t SELECT i, CASE i % 3 WHEN 0 THEN '2020-02-02Z'::timestamptz WHEN 1 THEN '2019-02-02Z'
				ELSE '2026-02-02Z' END, md5(i::text) ` + rows,
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "narrow", "bloated")
			t.Parallel()
			db := pgtest.Prepared(t, "empty_with_schema", store.Migrate)
			db.Do(setup)
			if name != "never analyzed" {
				db.Do("VACUUM ANALYZE")
			}
			j := newJournal(db)
			if err := undo(t, j, 1<<30, true, oldRows); err != nil {
				t.Fatal(err)
			}
			estimate := trashBytes(j.previews[oldRows.TaskName()])
			if db.Int("SELECT count(*) FROM pg_namespace WHERE nspname = 'cleanupd_trash'") > 0 {
				t.Error("a dry run has made the schema of the trash")
			}
			if err := undo(t, newJournal(db), 1<<30, false, oldRows); err != nil {
				t.Fatal(err)
			}
			ratio := float64(estimate) / float64(db.Int(trash.BytesSQL))
			if ratio < 0.75 || ratio > 1.33 {
				t.Errorf("the estimate is %d bytes, which is %.2f of what the trash has", estimate, ratio)
			}
		})
	}
}

// A run whose trash would not fit is refused before it deletes anything, and a dry run says so. Without undo, neither
// checks the trash.
func TestTrashThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for name, guards := range map[string]*guard.History{
		"without guards": nil,
		"with guards":    {Limits: guard.Limits{MaxSharePercent: 100}, Proven: oldRows.Task().Basis},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Prepared(t, "empty_with_schema", store.Migrate)
			db.Do(`CREATE TABLE t (id int PRIMARY KEY, at timestamptz);
				INSERT INTO t SELECT i, '2020-01-01' FROM generate_series(1, 1000) i;
				CREATE TABLE line (id int PRIMARY KEY, t int REFERENCES t ON DELETE CASCADE, word text); CREATE INDEX ON line (t);
				INSERT INTO line SELECT i, 1 + i % 1000, repeat(md5(i::text), 3) FROM generate_series(1, 20000) i;
				ANALYZE`)
			try := func(maxBytes int64, isDry bool) (*journal, error) {
				j := newJournal(db)
				j.history = guards
				return j, undo(t, j, maxBytes, isDry, oldRows)
			}
			const little, enough = 1 << 20, 8 << 20 // the rows take 3 MB
			j, err := try(little, true)
			if err != nil || !strings.Contains(j.details[oldRows.TaskName()], "--undo-max-bytes") {
				t.Errorf("the dry run says %q, want that the trash is too small: %v", j.details, err)
			}
			if j, err = try(enough, true); err != nil || j.details[oldRows.TaskName()] != "" {
				t.Errorf("the dry run says %q, want nothing: %v", j.details, err)
			}
			_, err = try(little, false)
			if refused := (*failure.Refusal)(nil); !errors.As(err, &refused) || refused.Reason != failure.ReasonTrashFull ||
				refused.Metadata["need_bytes"] == "" {
				t.Errorf("the run ended with %v, want that the trash is too small", err)
			}
			checkCount(t, db, 1000, "SELECT count(*) FROM t")
			if j, err = try(enough, false); err != nil || j.cascaded[oldRows.TaskName()] != 20_000 {
				t.Errorf("the run ended with %v and took %d rows with it, want 20000", err, j.cascaded[oldRows.TaskName()])
			}
			db.Do("INSERT INTO t SELECT i, '2020-01-01' FROM generate_series(1, 1000) i")
			if _, err = try(little, false); err == nil || !strings.Contains(err.Error(), "trash purge") {
				t.Errorf("the run with a full trash ended with %v, want what helps", err)
			}
			if _, err := runPolicies(t, db, false, oldRows); err != nil {
				t.Errorf("the run without undo ended with %v", err)
			}
		})
	}
}

// A run whose rows take more than was estimated stops before its next batch when the trash is full.
func TestTrashThatFillsUp(t *testing.T) {
	t.Parallel()
	db := pgtest.Prepared(t, "empty_with_schema", store.Migrate)
	db.Do(`CREATE TABLE t (id int PRIMARY KEY, at timestamptz, word text) WITH (autovacuum_enabled = off);
		INSERT INTO t SELECT i, '2020-01-01', repeat(md5(i::text), 30) FROM generate_series(1, 20000) i`)
	j := newJournal(db)
	err := runWith(t, j, func(c *cleanup.Config) {
		p := oldRows
		p.Enabled, p.Undo = true, new(time.Hour)
		c.ID, c.TrashMaxBytes, c.NoCampaign = uuid.NewString(), 4<<20, true
		c.Pipeline = []rules.Task{p.Task()}
		c.Todo = c.Pipeline
		c.Settings.Limits.RowsPerSecond = 5_000 // the size of the trash is read once a second
	})
	refused := (*failure.Refusal)(nil)
	if !errors.As(err, &refused) || refused.Reason != failure.ReasonTrashFull || refused.Metadata["need_bytes"] != "" {
		t.Errorf("the run ended with %v, want that the trash is full", err)
	}
	if n := j.deleted[oldRows.TaskName()]; n == 0 || n == 20_000 {
		t.Errorf("the run has deleted %d rows, want some of them", n)
	}
}

// A saved plan that does not fit is refused as a whole, though its first task would fit.
func TestPlanThatDoesNotFit(t *testing.T) {
	t.Parallel()
	db := pgtest.Prepared(t, "empty_with_schema", store.Migrate)
	db.Do(`CREATE TABLE t (id int PRIMARY KEY, at timestamptz, word text);
		INSERT INTO t SELECT i, '2020-01-01', repeat(md5(i::text), 3) FROM generate_series(1, 8000) i;
		CREATE TABLE u AS SELECT * FROM t; ALTER TABLE u ADD PRIMARY KEY (id); ANALYZE`)
	second := policy.Policy{Name: "second", Table: "u", OlderThan: oldRows.OlderThan}
	const maxBytes = 1_600_000 // one of them takes 1.1 MB
	dry := newJournal(db)
	if err := undo(t, dry, maxBytes, true, oldRows, second); err != nil {
		t.Fatal(err)
	}
	if dry.details[oldRows.TaskName()] != "" || !strings.Contains(dry.details[second.TaskName()], "earlier tasks") {
		t.Errorf("the dry run says %q, want that the second task does not fit", dry.details)
	}
	err := runWith(t, newJournal(db), func(c *cleanup.Config) {
		c.ID, c.TrashMaxBytes, c.NoCampaign, c.SavedPlan = uuid.NewString(), maxBytes, true, dry.planned
		oldRows, second := oldRows, second
		oldRows.Enabled, second.Enabled, oldRows.Undo, second.Undo = true, true, new(time.Hour), new(time.Hour)
		c.Pipeline = []rules.Task{oldRows.Task(), second.Task()}
		c.Todo = c.Pipeline
	})
	if refused := (*failure.Refusal)(nil); !errors.As(err, &refused) || refused.Reason != failure.ReasonTrashFull {
		t.Errorf("the run of the plan ended with %v, want that the trash is too small", err)
	}
	checkCount(t, db, 16_000, "SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM u)")
}

// If the trash cannot keep the rows of a later table, the task is refused before it deletes from an earlier one.
func TestNoUndoOfALaterTable(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{
		"a rule": "CREATE TABLE gone (id int); CREATE RULE r AS ON DELETE TO t_2 DO ALSO INSERT INTO gone VALUES (OLD.id)",
		"triggers, and an owner": `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';
			CREATE TRIGGER f BEFORE DELETE ON t_2 FOR EACH ROW EXECUTE FUNCTION f(); ALTER TABLE t_2 OWNER TO %owner;
			GRANT SELECT, DELETE ON t_2 TO neolane; GRANT USAGE ON SCHEMA public TO %owner; GRANT %owner TO neolane`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Prepared(t, "empty_with_schema", store.Migrate)
			db.Do(`CREATE TABLE t (id int, at timestamptz) PARTITION BY LIST (id);
				CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2);
				INSERT INTO t VALUES (1, '2020-01-01'), (2, '2020-01-01')`)
			db.Superuser(strings.ReplaceAll(last, "%owner", db.Role("owner")))
			j := newJournal(db)
			if err := undo(t, j, 1<<30, true, oldRows); err != nil {
				t.Fatal(err)
			}
			if said := j.details[oldRows.TaskName()]; !strings.Contains(said, "a run with undo would be refused") {
				t.Errorf("the dry run says %q, want that a run would refuse it", said)
			}
			err := undo(t, newJournal(db), 1<<30, false, oldRows)
			refused := (*failure.Refusal)(nil)
			if !errors.As(err, &refused) || refused.Reason != failure.ReasonNotUndoable {
				t.Errorf("the run ended with %v, want a refusal", err)
			}
			checkCount(t, db, 2, "SELECT count(*) FROM t")
		})
	}
}

// Where no other table refers to the rows, undo is refused only if keys would delete or change more of its rows.
func TestUndoWhereNothingGoesAlong(t *testing.T) {
	t.Parallel()
	const key = "ALTER TABLE customer ADD friend int REFERENCES customer"
	const friends = "; UPDATE customer SET friend = id + 1 WHERE id BETWEEN 31 AND 35"
	for name, c := range map[string]struct {
		setup        string
		unreferenced bool
		refused      string
		gone         int64
	}{
		"referring rows":             {"", false, "a foreign key changes rows of", 0},
		"unreferenced":               {"", true, "", 10},
		"a key to itself":            {"DROP TABLE note, orders; " + key + friends, false, "", 40},
		"a key to itself that takes": {"DROP TABLE note; " + key + " ON DELETE CASCADE", true, "back to the same table", 0},
		"a key to itself that clears": {
			"DROP TABLE note; " + key + " ON DELETE SET NULL", true, "a foreign key changes rows of", 0,
		},
		"unreferenced but by itself": {key + friends, true, "", 10},
		"a row that gets a child": {
			`CREATE FUNCTION visits() RETURNS trigger LANGUAGE plpgsql AS
				'BEGIN INSERT INTO visit VALUES (OLD.id); RETURN OLD; END';
			CREATE TRIGGER visits BEFORE DELETE ON customer FOR EACH ROW WHEN (OLD.id = 35) EXECUTE FUNCTION visits()`,
			true, "", 9,
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "referring rows", "unreferenced", "a key to itself that takes",
				"a row that gets a child")
			t.Parallel()
			db := pgtest.Prepared(t, "empty_with_schema", store.Migrate)
			db.Do(customers + c.setup)
			err := undo(t, newJournal(db), 1<<30, false, goneCustomers(c.unreferenced))
			if refused := (*failure.Refusal)(nil); (c.refused != "") != errors.As(err, &refused) ||
				err != nil && (c.refused == "" || !strings.Contains(err.Error(), c.refused)) {
				t.Fatalf("the run ended with %v, want %q", err, c.refused)
			}
			checkCount(t, db, 40-c.gone, "SELECT count(*) FROM customer")
			if c.gone > 0 {
				name := db.Strings("SELECT name FROM cleanupd.trash WHERE root LIKE '%customer%'")[0]
				checkCount(t, db, c.gone, "SELECT count(*) FROM cleanupd_trash."+name)
			}
		})
	}
}

// If rows could be restored only into another schema, a dry run and a run say so.
func TestUndoNeedsOwner(t *testing.T) {
	t.Parallel()
	db := pgtest.Prepared(t, "empty_with_schema", store.Migrate)
	owner := db.Role("owner")
	db.Do("CREATE TABLE t (id int, at timestamptz); INSERT INTO t VALUES (1, '2020-01-01')")
	db.Superuser("ALTER TABLE t OWNER TO " + owner + "; GRANT SELECT, DELETE ON t TO neolane")
	for _, isDry := range []bool{true, false} {
		j := newJournal(db)
		if err := undo(t, j, 1<<30, isDry, oldRows); err != nil {
			t.Fatal(err)
		}
		if log := strings.Join(j.logs, "\n"); !strings.Contains(log, "GRANT "+owner+" TO neolane") {
			t.Errorf("dry run %t: the log is %q, want the GRANT", isDry, log)
		}
	}
}

// A dry run with undo says which rows could not be undone, and which tasks a run would refuse.
func TestNoUndoOfAPreview(t *testing.T) {
	t.Parallel()
	db := pgtest.Prepared(t, "empty_with_schema", store.Migrate)
	db.Do(threads + `; CREATE TABLE person (id int PRIMARY KEY, at timestamptz, name text);
		INSERT INTO person SELECT i, '2020-01-01', 'x' FROM generate_series(1, 10) i`)
	forget := policy.Policy{
		Name: "forget", Table: "person", OlderThan: &policy.OlderThan{Column: "at", Days: new(365)},
		Assign: []policy.Assign{{Column: "name"}},
	}
	j := newJournal(db)
	if err := undo(t, j, 1<<30, true, oldTopics, forget); err != nil {
		t.Fatal(err)
	}
	if p := j.previews[forget.TaskName()][0]; !slices.Equal(p.NoUndo, []string{"its rows are updated"}) ||
		p.TrashBytes != 0 {
		t.Errorf("the preview of updates says %q and has %d bytes for the trash, want a reason and none", p.NoUndo,
			p.TrashBytes)
	}
	if said := j.details[oldTopics.TaskName()]; !strings.Contains(said, "a run with undo would be refused") ||
		!strings.Contains(said, "a foreign key changes rows of") {
		t.Errorf("the dry run says %q of a key that clears, want that a run would refuse it", said)
	}
	if plain, err := runPolicies(t, db, true, forget); err != nil || plain.previews[forget.TaskName()][0].NoUndo != nil {
		t.Errorf("a dry run without undo says %q, want nothing: %v", plain.previews[forget.TaskName()][0].NoUndo, err)
	}
}
