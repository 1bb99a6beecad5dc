package tasks_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func checkPreview(t *testing.T, p cleanup.PreviewTable, rows int64, rule string, sample ...int64) {
	t.Helper()
	if p.Rows != rows {
		t.Errorf("the preview of %s has %d rows, want %d", p.Table, p.Rows, rows)
	}
	if !strings.Contains(p.Rule, rule) {
		t.Errorf("the rule for %s is %q, want %q in it", p.Table, p.Rule, rule)
	}
	if !slices.Equal(p.Sample, sample) {
		t.Errorf("the sample of %s is %d, want %d", p.Table, p.Sample, sample)
	}
}

func checkDates(t *testing.T, p cleanup.PreviewTable, oldest, newest time.Time) {
	t.Helper()
	if p.Oldest == nil || !p.Oldest.Equal(oldest) {
		t.Errorf("the oldest date of %s is %v, want %s", p.Table, p.Oldest, oldest)
	}
	if p.Newest == nil || !p.Newest.Equal(newest) {
		t.Errorf("the newest date of %s is %v, want %s", p.Table, p.Newest, newest)
	}
}

// A dry run shows the rows of each table that the run will delete, and accounts for the earlier tasks.
func TestPreview(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`
INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, iIsModel, iDeliveryMode, iState, tsDelete, tsValidity,
  tsLastModified) VALUES
  (1, 1, 0, 1, 55, '2025-01-01', NULL, '2025-01-01'), -- goes
  (2, 0, 0, 1, 55, NULL, '2026-02-01', '2026-01-01'); -- ends
INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iStatus, tsLastModified) VALUES
  (11, 1, 1, '2024-01-01'), (12, 1, 1, '2026-02-28'), -- of the delivery, old or young
  (21, 2, 6, '2024-02-01'), (22, 2, 1, '2024-03-01'), (23, 2, 1, '2024-05-01'), -- the first is cancelled
  (31, 3, 1, '2026-02-28');
CREATE TABLE wkDlv_1 (i int);
CREATE TABLE wkDlv_2 (i int);
CREATE VIEW wkDlv_1_v AS SELECT * FROM wkDlv_1;
UPDATE NmsDelivery SET iState = 85, iToDeliver = 20000, iProcessed = 0, tsLastModified = '2026-02-28'
  WHERE iDeliveryId = 2`)
	before := db.Int("SELECT count(*) + sum(iState) FROM NmsDelivery")
	j := mustRun(t, db, dry)
	if after := db.Int("SELECT count(*) + sum(iState) FROM NmsDelivery"); after != before {
		t.Error("a dry run changed something")
	}
	find := func(task, table string, action cleanup.PreviewAction) cleanup.PreviewTable {
		i := slices.IndexFunc(j.previews[task], func(p cleanup.PreviewTable) bool {
			return strings.Contains(p.Table, table) && p.Action == action
		})
		if i < 0 {
			t.Fatalf("%s: no %s of %s in %+v", task, action, table, j.previews[task])
		}
		return j.previews[task][i]
	}
	of := find("deliveries", `"nmsbroadlogrcp"`, cleanup.ActionDelete)
	slices.Sort(of.Sample)
	checkPreview(
		t,
		of,
		2,
		"of a row of nmsdelivery: iDeleteStatus is not 0 and tsDelete (or tsLastModified) older than 7 "+
			"days (2026-02-22 12:00 UTC)",
		11,
		12,
	)
	if of.Oldest != nil {
		t.Errorf("the logs of the delivery have the oldest date %s, want none", of.Oldest)
	}
	checkPreview(t, find("expired-deliveries", `"nmsbroadlogrcp"`, cleanup.ActionUpdate), 1, "", 21)
	old := find("delivery-logs", `"nmsbroadlogrcp"`, cleanup.ActionDelete)
	slices.Sort(old.Sample)
	day := func(month time.Month) time.Time { return time.Date(2024, month, 1, 0, 0, 0, 0, time.UTC) }
	checkPreview(t, old, 2, "tsLastModified older than 180 days (2025-09-02 12:00 UTC)", 22, 23)
	checkDates(t, old, day(time.March), day(time.May))
	if old.RowsTotal < old.Rows {
		t.Errorf("the table has %d rows, and %d are obsolete", old.RowsTotal, old.Rows)
	}
	if old.Bytes == 0 {
		t.Error("the size of the obsolete rows is missing")
	}
	tables := find("work-tables", `wkdlv\_%`, cleanup.ActionDrop)
	slices.Sort(tables.Names)
	// The table of an ended delivery is kept.
	if want := []string{"wkdlv_1", "wkdlv_1_v"}; tables.Tables != 2 || !slices.Equal(tables.Names, want) {
		t.Errorf("%d work tables are obsolete: %q, want %q", tables.Tables, tables.Names, want)
	}
	done := mustRun(t, db, nil)
	compareDryRun(t, j, done)
}

// A preview has the size of a table with all its partitions, even if the table was never analyzed.
func TestPreviewTellsTheSizeOfTheTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`
DROP TABLE XtkAudit;
CREATE TABLE XtkAudit (iAuditId integer, sEntity text, tsChanged timestamptz) PARTITION BY RANGE (tsChanged);
CREATE TABLE audit1 PARTITION OF XtkAudit FOR VALUES FROM (MINVALUE) TO ('2024-01-01');
CREATE TABLE audit2 PARTITION OF XtkAudit FOR VALUES FROM ('2024-01-01') TO (MAXVALUE);
INSERT INTO XtkAudit SELECT i, '', CASE WHEN i <= 10 THEN timestamptz '2020-01-01' ELSE '2026-02-20' END
  FROM generate_series(1, 1000) i;
ALTER TABLE NmsVisitor SET (autovacuum_enabled = off);
INSERT INTO NmsVisitor (iVisitorId, tsLastModified, sExternalId) SELECT i, CASE
  WHEN i <= 10 THEN timestamptz '2020-01-01' ELSE '2026-02-28' END, repeat('x', 60) FROM generate_series(1, 100000) i`)
	j := mustRun(t, db, dry, "audit-trail", "visitors")
	for task, about := range map[string]int64{"audit-trail": 1_000, "visitors": 100_000} {
		p := j.previews[task][0]
		size := db.Int(
			"SELECT pg_total_relation_size($1::text::regclass) + COALESCE(sum(pg_total_relation_size(relid)), 0) "+
				"FROM pg_partition_tree($1::text::regclass)",
			p.Table,
		)
		if p.Rows != 10 {
			t.Errorf("%s: %d rows are obsolete, want 10", task, p.Rows)
		}
		if p.RowsTotal < about/2 || p.RowsTotal > about*2 {
			t.Errorf("%s: the table has %d rows, want about %d", task, p.RowsTotal, about)
		}
		if estimated := task == "visitors"; p.TotalEstimated != estimated || !estimated && p.RowsTotal != about {
			t.Errorf("%s: %d is an estimate: %t, want %t", task, p.RowsTotal, p.TotalEstimated, estimated)
		}
		if p.Bytes == 0 || p.Bytes > size/20 {
			t.Errorf("%s: the obsolete rows have %d bytes, want 1 to %d", task, p.Bytes, size/20)
		}
	}
}

// A preview has the oldest and the newest date of lists, and of rows to roll up.
func TestPreviewTellsDates(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`
INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus, tsExpirationDate)
  VALUES (1, 1, 0, '2026-01-01'), (2, 1, 1, NULL), (3, 0, 0, '2026-02-01'), (4, 0, 0, '-infinity');
INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors)
  VALUES (1, 1, '2026-01-01', 5), (1, 1, '2026-02-01', 50)`)
	j := mustRun(t, db, dry, "lists-to-delete", "email-error-stats")
	first := func(month time.Month) time.Time { return time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC) }
	for task, rows := range map[string]int64{"lists-to-delete": 4, "email-error-stats": 2} {
		p := j.previews[task][0]
		if p.Rows != rows {
			t.Errorf("%s: %d rows, want %d", task, p.Rows, rows)
		}
		checkDates(t, p, first(time.January), first(time.February))
	}
}

// A dry run that another worker continues at any task finds the same rows as an uninterrupted one.
func TestDryRunGoesOn(t *testing.T) {
	t.Parallel()
	for seed := range suite.Size(suite.Model, 1, 3) { // each continues elsewhere
		db := pgtest.Campaign(t)
		randomDatabase(t, db, uint64(seed+1), now)
		alone := mustRun(t, db, dry)
		for at := seed; at < len(tasks.Pipeline); at += suite.Size(suite.Model, 8, 3) {
			first := tasks.Pipeline[at]
			j := mustRun(t, db, func(c *cleanup.Config) {
				c.DryRun, c.Chosen, c.Todo = true, c.Todo, c.Todo[at:]
				c.Succeeded, c.Done = map[string]bool{}, map[string]cleanup.SavedTask{}
				for _, done := range tasks.Pipeline[:at] {
					c.Succeeded[done.Name], c.Done[done.Name] = alone.states[done.Name] == cleanup.Succeeded, alone.planned[done.Name]
				}
			})
			for _, what := range tasks.Pipeline[at:] {
				got := [2]int64{j.deleted[what.Name], j.updated[what.Name]}
				if want := [2]int64{alone.deleted[what.Name], alone.updated[what.Name]}; got != want {
					t.Errorf("seed %d, continued at %s: %s deletes and updates %d rows, want %d", seed+1, first.Name,
						what.Name, got, want)
				}
			}
		}
	}
}

// The preview of paired rows has up to five of their keys, and the rule of the rows that they are paired with.
func TestPreviewOfPairedRows(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`
INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sTrackingLogSchema) VALUES (1, 'nms:trackingLogRcp');
INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog) SELECT i, '2020-01-01' FROM generate_series(1, 40000) i;
INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) SELECT i FROM generate_series(2, 50000, 10000) i UNION ALL SELECT i
  FROM generate_series(5, 50000, 10000) i`)
	j := mustRun(t, db, dry, "tracking-logs")
	i := slices.IndexFunc(j.previews["tracking-logs"],
		func(p cleanup.PreviewTable) bool { return strings.Contains(p.Table, "web") })
	if i < 0 {
		t.Fatalf("the preview lacks the paired table: %+v", j.previews)
	}
	p := j.previews["tracking-logs"][i]
	slices.Sort(p.Sample)
	checkCount(t, db, purge.SampleSize,
		"SELECT count(*) FROM NmsWebTrackingLog WHERE iWebTrackingLogId <= 40000 AND iWebTrackingLogId = ANY ($1)",
		p.Sample)
	if p.Rows != 8 {
		t.Errorf("%d rows, want 8", p.Rows)
	}
	if n := len(slices.Compact(p.Sample)); n != purge.SampleSize {
		t.Errorf("the sample has %d keys, want %d", n, purge.SampleSize)
	}
	if want := "tsLog older than 365 days ("; !strings.Contains(p.Rule, want) {
		t.Errorf("the rule is %q, want %q in it", p.Rule, want)
	}
}

// A preview remarks on rows that it does not count: inserted rows, and rows that another server, a foreign key or a
// trigger changes.
func TestPreviewRemarks(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`
INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
INSERT INTO NmsDelivery (iDeliveryId, iWebResPurged, iNeedMirrorPage, tsWebValidity) VALUES (1, 0, 1, '2026-01-01');
INSERT INTO NmsBroadLogRcp (iBroadLogId, tsLastModified) VALUES (1, '2020-01-01');
INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2020-01-01');
INSERT INTO XtkReject (iRejectId, tsLog) VALUES (1, '2020-01-01');
ALTER TABLE NmsVisitor ADD UNIQUE (iVisitorId);
CREATE TABLE CusVisit (iVisitorId int PRIMARY KEY REFERENCES NmsVisitor (iVisitorId) ON DELETE CASCADE);
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';
CREATE TRIGGER t BEFORE DELETE ON XtkReject FOR EACH ROW EXECUTE FUNCTION nothing()`)
	db.MoveAway(db.Far(), "nmsbroadlogrcp")
	j := mustRun(t, db, dry, "mirror-pages", "delivery-logs", "visitors", "import-rejects")
	for task, remark := range map[string]string{
		"mirror-pages":   "job log are inserted",
		"delivery-logs":  "in a foreign table",
		"visitors":       "foreign key deletes or changes rows of cusvisit",
		"import-rejects": "a trigger",
	} {
		p := j.previews[task]
		if len(p) != 1 || len(p[0].Remarks) != 1 || !strings.Contains(p[0].Remarks[0], remark) {
			t.Errorf("%s: the preview is %+v, want the remark %q", task, p, remark)
		}
	}
}

// A preview remarks that the server will refuse to delete from a published table without a replica identity, and how to
// set one.
func TestPreviewOfPublishedTables(t *testing.T) {
	t.Parallel()
	tables := map[string]struct {
		sql      string
		remarked bool // if the table is published
	}{
		"plain":     {"", true},
		"identity":  {"ALTER TABLE identity REPLICA IDENTITY FULL", false},
		"keyed":     {"ALTER TABLE keyed ADD PRIMARY KEY (id)", false},
		"no_key":    {"ALTER TABLE no_key ADD PRIMARY KEY (id), REPLICA IDENTITY NOTHING", true},
		"postponed": {"ALTER TABLE postponed ADD PRIMARY KEY (id) DEFERRABLE", true},
		"young":     {"UPDATE young SET at = now()", true},
		"indexed": {
			"ALTER TABLE indexed ALTER id SET NOT NULL; CREATE UNIQUE INDEX by_id ON indexed (id); " +
				"ALTER TABLE indexed REPLICA IDENTITY USING INDEX by_id",
			false,
		},
	}
	db := pgtest.Empty(t)
	var policies []policy.Policy
	for table, c := range tables {
		db.Do("CREATE TABLE " + table + " (id int, at date); INSERT INTO " + table + " VALUES (1, '2020-01-01'); " + c.sql)
		policies = append(policies,
			policy.Policy{Name: table, Table: table, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)}})
	}
	db.Do("CREATE TABLE another ()")
	few := slices.DeleteFunc(slices.Clone(policies),
		func(p policy.Policy) bool { return p.Table != "plain" && p.Table != "postponed" })
	for publication, c := range map[string]struct {
		policies    []policy.Policy
		isPublished func(table string) bool
	}{
		"FOR ALL TABLES WITH (publish = 'insert')": {few, func(string) bool { return false }},
		"FOR TABLE another":                        {few, func(string) bool { return false }},
		"FOR TABLE plain":                          {few, func(table string) bool { return table == "plain" }},
		"FOR ALL TABLES":                           {policies, func(string) bool { return true }},
	} {
		db.Superuser("CREATE PUBLICATION p " + publication)
		dry, err := runPolicies(t, db, true, c.policies...)
		if err != nil {
			t.Fatal(err)
		}
		j, _ := runPolicies(t, db, false, c.policies...)
		for _, p := range c.policies {
			refuses, remarks := tables[p.Table].remarked && c.isPublished(p.Table), ""
			for _, shown := range dry.previews[p.TaskName()] {
				remarks += strings.Join(shown.Remarks, "; ")
			}
			help := fmt.Sprintf(
				"has no replica identity, so the server rejects this: ALTER TABLE %s REPLICA IDENTITY FULL helps", p.Table)
			if strings.Contains(remarks, help) != refuses {
				t.Errorf("%s: the remarks of %s are %q, want %q: %t", publication, p.Table, remarks, help, refuses)
			}
			if failed := j.states[p.TaskName()] == cleanup.Failed; failed != refuses {
				t.Errorf("%s: %s failed: %t, want %t; %s", publication, p.Table, failed, refuses, j.problems[p.TaskName()])
			}
		}
		db.Superuser("DROP PUBLICATION p")
	}
}

// A preview remarks that the server will refuse what foreign keys do to rows of published tables without a replica
// identity.
func TestPreviewOfPublishedTablesWithForeignKeys(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	tests := map[string]struct {
		sql, refusing string
	}{
		"cascade":    {"CREATE TABLE child (a int REFERENCES parent ON DELETE CASCADE)", "child"},
		"set null":   {"CREATE TABLE child (a int REFERENCES parent ON DELETE SET NULL)", "child"},
		"restricted": {"CREATE TABLE child (a int REFERENCES parent)", ""},
		"an identity": {
			"CREATE TABLE child (a int REFERENCES parent ON DELETE CASCADE); ALTER TABLE child REPLICA IDENTITY FULL",
			"",
		},
		"of a child": {
			"CREATE TABLE child (a int PRIMARY KEY REFERENCES parent ON DELETE CASCADE); CREATE TABLE grandchild (a int " +
				"REFERENCES child ON DELETE CASCADE)",
			"grandchild",
		},
		"of a child that stays": {
			"CREATE TABLE child (a int PRIMARY KEY, b int REFERENCES parent ON DELETE SET NULL); CREATE TABLE grandchild " +
				"(a int REFERENCES child ON DELETE CASCADE)",
			"",
		},
		"a partition": {
			"CREATE TABLE child (a int REFERENCES parent ON DELETE CASCADE) PARTITION BY LIST (a); CREATE TABLE part " +
				"PARTITION OF child DEFAULT",
			"part",
		},
	}
	db := pgtest.Empty(t)
	schemas, policies := map[string]string{}, []policy.Policy(nil)
	for name, c := range tests {
		rows := ""
		if c.refusing != "" { // rows that refer to the obsolete one, at each level
			if rows = "; INSERT INTO child VALUES (1)"; c.refusing == "grandchild" {
				rows += "; INSERT INTO grandchild VALUES (1)"
			}
		}
		schemas[name] = inSchema(db, name, "CREATE TABLE parent (id int PRIMARY KEY, at date); "+
			"INSERT INTO parent VALUES (1, '2020-01-01'); "+c.sql+rows)
		policies = append(policies, policy.Policy{
			Name: schemas[name], Table: schemas[name] + ".parent", OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		})
	}
	db.Superuser("CREATE PUBLICATION p FOR ALL TABLES")
	dry, err := runPolicies(t, db, true, policies...)
	if err != nil {
		t.Fatal(err)
	}
	j, _ := runPolicies(t, db, false, policies...)
	for name, c := range tests {
		task, remarks := "policy/"+schemas[name], ""
		for _, p := range dry.previews[task] {
			remarks += strings.Join(p.Remarks, "; ")
		}
		if c.refusing == "" {
			if strings.Contains(remarks, "replica identity") {
				t.Errorf("%s: the remarks are %q, want none about replica identities", name, remarks)
			}
			continue
		}
		if help := c.refusing + " is published and has no replica identity"; !strings.Contains(remarks, help) {
			t.Errorf("%s: the remarks are %q, want %q", name, remarks, help)
		}
		j.checkProblem(t, task, "REPLICA IDENTITY")
	}
}

// A preview remarks that the server will refuse to store when a task was done.
func TestPreviewOfPublishedOptions(t *testing.T) {
	t.Parallel()
	const help = "the time up to which the task is done could not be stored: " +
		"xtkoption is published and has no replica identity"
	db := pgtest.Campaign(t)
	const address = "; INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES (1, 2, '2020-01-01')"
	db.Do("ALTER TABLE NmsAddress REPLICA IDENTITY FULL")
	for _, c := range []struct {
		sql      string
		remarked bool
	}{
		{"CREATE PUBLICATION p FOR ALL TABLES" + address, true},
		{"DELETE FROM NmsAddress", true},
		{"DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE NmsVisitor" + address, false},
		{
			"DROP PUBLICATION p; DELETE FROM XtkOption; CREATE PUBLICATION p FOR ALL TABLES; " +
				"ALTER TABLE XtkOption REPLICA IDENTITY FULL" + address,
			false,
		},
	} {
		db.Superuser(c.sql)
		p := mustRun(t, db, dry, "npai").previews["npai"]
		if len(p) != 1 || strings.Contains(strings.Join(p[0].Remarks, "; "), help) != c.remarked {
			t.Errorf("%s: the preview is %+v, want a remark: %t", c.sql, p, c.remarked)
		}
		if err := runWith(t, newJournal(db), nil, "npai"); (err != nil) != c.remarked {
			t.Errorf("%s: the run ended with %v, want an error: %t", c.sql, err, c.remarked)
		}
	}
}

var previewRows = flag.Int("preview-rows", 1_000_000, "how many rows the table of BenchmarkPreview has")

// A preview reads a table once for all its tasks. The benchmark reports its fastest time as a multiple of the fastest
// count of the rows: with several processes and any index, with one process, and with one process that reads the table.
func BenchmarkPreview(b *testing.B) {
	db := pgtest.Campaign(b)
	db.Do("INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp')")
	db.Do(`INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iIsModel, iDeliveryMode, iState, tsValidity)
		SELECT i, (i % 10 = 0)::int, '2025-01-01', 0, 1, 55, CASE WHEN i % 10 = 1 THEN timestamptz '2026-02-01' END
			FROM generate_series(1, 1000) i`)
	if _, err := db.Exec(b.Context(), `INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iStatus, tsLastModified)
		SELECT i, i % 1000 + 1, i % 7, timestamptz '2026-03-01' - random() * interval '400 days'
			FROM generate_series(1, $1::int) i`, *previewRows); err != nil {
		b.Fatal(err)
	}
	db.Do("VACUUM ANALYZE NmsBroadLogRcp")
	want := int64(
		db.Int(
			"SELECT count(*) FROM NmsBroadLogRcp WHERE tsLastModified < '2025-09-02 12:00+00' AND iDeliveryId % 10 " +
				"<> 0 AND (iStatus <> 6 OR iDeliveryId % 10 <> 1)",
		),
	)
	// as in serve; with fewer connections there would be one reader
	pool, err := pgxpool.New(b.Context(), db.URL()+"&pool_max_conns=8")
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	least := map[string]time.Duration{}
	timed := func(what string, do func()) {
		begun := time.Now()
		do()
		if took := time.Since(begun); least[what] == 0 || took < least[what] {
			least[what] = took
		}
	}
	counts := map[string]string{
		"x-count":       "",
		"x-count-alone": "SET LOCAL max_parallel_workers_per_gather = 0",
		"x-count-heap":  "SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL enable_indexonlyscan = off",
	}
	for b.Loop() {
		for name, settings := range counts {
			err := pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(b.Context(), settings); err != nil {
					return err
				}
				var rows int
				var err error
				timed(name, func() { // planned again with the settings
					err = tx.QueryRow(b.Context(), "SELECT count(*) FROM NmsBroadLogRcp", pgx.QueryExecModeExec).
						Scan(&rows)
				})
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		j := newJournal(db)
		timed("preview", func() {
			err = runWith(b, j, func(c *cleanup.Config) {
				c.Pool, c.DryRun, c.Settings.Workers, c.Settings.Limits = pool, true, 2, purge.Limits{
					ActiveSessions: 50,
				}
			}, "deliveries", "expired-deliveries", "delivery-logs")
		})
		if got := j.deleted["delivery-logs"]; err != nil || got != want {
			b.Fatalf("the preview has %d old logs, want %d: %v", got, want, err)
		}
	}
	for name := range counts {
		b.ReportMetric(least["preview"].Seconds()/least[name].Seconds(), name)
	}
}

// A dry run uses the state that a task gives to deliveries later in the same task, although an earlier task reads their
// table. The earlier task retains a delivery, because its mirror pages are on hold.
func TestPreviewOfWhatATaskChanges(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`
INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', 1);
INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, iDeliveryMode, iState, tsDelete, tsValidity) VALUES
  (1, 1, 1, 55, '2025-01-01', NULL), (2, 0, 1, 55, NULL, '2026-02-01');
INSERT INTO NmsMirrorPageSearch (iMessageId, iDeliveryId) VALUES (5, 1);
INSERT INTO NmsDeliveryPart (iDeliveryPartId, iDeliveryId) VALUES (1, 1), (2, 2);
DROP TABLE NmsBroadLogMid -- the only logs of both tasks`)
	dryRun, done := newJournal(db), newJournal(db)
	for _, j := range []*journal{dryRun, done} {
		j.holds = func() rules.Holds {
			return rules.Holds{Names: []string{"a hold"}, Tables: heldTable("nmsmirrorpagesearch")}
		}
		if err := runWith(t, j, func(c *cleanup.Config) { c.DryRun = j == dryRun }); err != nil {
			t.Fatal(err)
		}
	}
	for _, task := range []string{"deliveries", "expired-deliveries"} {
		if got := [2]int64{dryRun.deleted[task], done.deleted[task]}; got != [2]int64{1, 1} {
			t.Errorf("%s: the dry run counted %d rows, the run %d, want 1", task, got[0], got[1])
		}
	}
}

// The preview of a policy says how many rows never match because the column with their age is NULL, even if no row
// matches.
func TestPreviewOfRowsWithoutDates(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(
		`CREATE TABLE shop_order (id int, placed timestamptz, number int, required date NOT NULL) PARTITION BY RANGE (id);
		CREATE TABLE few PARTITION OF shop_order FOR VALUES FROM (0) TO (1000);
		CREATE TABLE many PARTITION OF shop_order DEFAULT;
		INSERT INTO shop_order SELECT i, CASE WHEN i % 4 > 0 THEN timestamptz '2026-02-28' END, NULLIF(i % 2, 0), '2020-01-01'
			FROM generate_series(1, 4160) i`,
	)
	none := "0"
	for name, c := range map[string]struct {
		policy  policy.Policy
		remarks []string
	}{
		"an age": {
			policy.Policy{OlderThan: &policy.OlderThan{Column: "PLACED", Days: new(300)}},
			[]string{"never deleted: 1,040 rows without a date in placed"},
		},
		"an age of rows that are changed": {
			policy.Policy{
				OlderThan: &policy.OlderThan{Column: "placed", Days: new(300)},
				Assign:    []policy.Assign{{Column: "number", Value: &none}},
			},
			[]string{"never changed: 1,040 rows without a date in placed"},
		},
		"an order": {
			policy.Policy{KeepNewest: &policy.KeepNewest{OrderBy: "number", Count: 9999}},
			[]string{"never deleted: 2,080 rows without a number in number"},
		},
		"an age and the newest": {
			policy.Policy{
				OlderThan: &policy.OlderThan{Column: "placed", Days: new(300)}, KeepNewest: &policy.KeepNewest{Count: 9999},
			},
			[]string{"never deleted: 1,040 rows without a date in placed"},
		},
		"a required date": {policy.Policy{OlderThan: &policy.OlderThan{Column: "required", Days: new(3000)}}, nil},
	} {
		c.policy.Name, c.policy.Table = "p", "shop_order"
		j, err := runPolicies(t, db, true, c.policy)
		if err != nil {
			t.Fatal(err)
		}
		var remarks []string
		for _, table := range j.previews["policy/p"] {
			remarks = append(remarks, table.Remarks...)
			if table.RowsTotal != 4160 {
				t.Errorf("%s: the table has %d rows, want 4160", name, table.RowsTotal)
			}
		}
		if !slices.Equal(remarks, c.remarks) {
			t.Errorf("%s: %q, want %q", name, remarks, c.remarks)
		}
	}
}
