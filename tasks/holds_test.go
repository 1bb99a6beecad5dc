package tasks_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var holdSeeds = flag.Int("hold-seeds", suite.Size(suite.Model, 1, 5), "how many random databases TestRandomHolds makes")

// A run retains the rows on hold of a random database, and deletes the other obsolete rows, as the model does. The dry
// run predicts both.
func TestRandomHolds(t *testing.T) {
	t.Parallel()
	for i := range *holdSeeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			m := randomDatabase(t, db, seed, now)
			rng := rand.New(rand.NewPCG(seed, 3))
			h := m.randomHolds(rng)
			original := m.keys()
			m.applyHolds(h)
			m.run()
			holds := func() rules.Holds { return h }
			dryRun := newJournal(db)
			dryRun.holds = holds
			if err := runWith(t, dryRun, dry); err != nil {
				t.Fatal(err)
			}
			j := newJournal(db)
			j.holds = holds
			var planned map[string]cleanup.SavedTask
			if seed%2 == 0 {
				planned = dryRun.planned
			}
			if err := runWith(
				t, j, func(c *cleanup.Config) { c.Settings.MaxRows, c.SavedPlan = []int{0, 50}[rng.IntN(2)], planned },
			); err != nil {
				t.Fatal(err)
			}
			compareDryRun(t, dryRun, j)
			compare(t, fmt.Sprintf("on hold (%+v)", h), contents(t, db, m, original), m.contents(original))
			for task, left := range j.retained {
				if left.OnHold != dryRun.retained[task].OnHold {
					t.Errorf("%s: %d rows are on hold, %d in the dry run", task, left.OnHold,
						dryRun.retained[task].OnHold)
				}
			}
		})
	}
}

// linesOnHold returns the rows of a database that are on hold by their own columns, as lines.
func linesOnHold(
	t *testing.T, db *pgtest.DB, m *model, h rules.Holds, original map[string]map[string]bool,
) (lines []string) {
	t.Helper()
	m.applyHolds(h)
	for _, table := range m.db.Tables {
		rows, err := db.Query(t.Context(), "SELECT * FROM "+table.Name)
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]int{}
		for i, f := range rows.FieldDescriptions() {
			byName[f.Name] = i
		}
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				t.Fatal(err)
			}
			row := make([]any, len(table.Columns))
			for i, column := range table.Columns {
				switch v := values[byName[column]].(type) {
				case int16:
					row[i] = int64(v)
				case int32:
					row[i] = int64(v)
				default:
					row[i] = v
				}
			}
			if m.onHoldItself(rec{table, row}, nil) {
				lines = append(lines, line(table, row, original[table.Name]))
			}
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
	}
	return lines
}

// Creating a hold fails the open batch. The rows on hold are retained from then on.
func TestHoldsInMidRun(t *testing.T) {
	t.Parallel()
	for i := range *holdSeeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			m := randomDatabase(t, db, seed, now)
			rng := rand.New(rand.NewPCG(seed, 4))
			h := m.randomHolds(rng)
			original := m.keys()
			j := newJournal(db)
			j.holds = func() rules.Holds {
				if j.creates > 0 {
					return h
				}
				return rules.Holds{}
			}
			var onHoldRows []string
			at := rng.IntN(40)
			j.beforeCommit = func(*pgx.Batch, purge.Delta) {
				if j.creates == 0 && len(j.batches) >= at {
					j.creates = 1
					onHoldRows = linesOnHold(t, db, m, h, original)
				}
			}
			if err := runWith(t, j, func(c *cleanup.Config) { c.Settings.MaxRows = 20 }); err != nil {
				t.Fatal(err)
			}
			after := linesOnHold(t, db, m, h, original)
			for _, line := range onHoldRows {
				if !slices.Contains(after, line) {
					t.Errorf("%+v: a row on hold is missing: %s", h, line)
				}
			}
		})
	}
}

// Rows of somebody on hold are kept, also if the table had none when the task began.
func TestRowsThatComeOnHoldInMidRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	const insert = `INSERT INTO NmsBroadLogRcp (iBroadLogId, iRecipientId, tsLastModified)
		SELECT i, %s, timestamptz '2000-01-01' FROM generate_series(%d, %d) i`
	db.Do(mappings + fmt.Sprintf(insert, "i % 5", 1, 30_000))
	j := newJournal(db)
	j.holds = func() rules.Holds { return rules.Holds{Names: []string{"x"}, Recipients: []int64{7}} }
	j.committed = func() {
		j.committed = nil
		db.Do("UPDATE NmsBroadLogRcp SET iRecipientId = 7 WHERE iBroadLogId > 29900; " +
			fmt.Sprintf(insert, "7", 30_001, 30_010))
	}
	if err := runWith(t, j, func(*cleanup.Config) {}, "delivery-logs"); err != nil {
		t.Fatal(err)
	}
	if n, all := db.Int("SELECT count(*) FROM NmsBroadLogRcp WHERE iRecipientId = 7"),
		db.Int("SELECT count(*) FROM NmsBroadLogRcp"); n != 110 || all != n {
		t.Errorf("%d rows are left, want the 110 of the recipient; of the recipient are %d", all, n)
	}
}

// Each kind of hold retains its rows and no others. Runs and dry runs count them.
func TestHolds(t *testing.T) {
	t.Parallel()
	const obsolete = mappings + `
INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', 1);
INSERT INTO NmsDelivery (iDeliveryId) VALUES (9); INSERT INTO NmsGroup (iGroupId) VALUES (9);
INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iState) SELECT i, 1, '2000-01-01', 95
  FROM generate_series(1, 3) i;
INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iRecipientId, tsLastModified)
  SELECT 10 * d + r, d, r, '2000-01-01' FROM generate_series(1, 3) d, generate_series(1, 3) r;
INSERT INTO NmsCouponValue (iMessageId) SELECT iBroadLogId FROM NmsBroadLogRcp;
INSERT INTO NmsTrackingLogRcp (iTrackingLogId, iDeliveryId, iRecipientId, tsLog)
  SELECT iBroadLogId, iDeliveryId, iRecipientId, '2000-01-01' FROM NmsBroadLogRcp;
INSERT INTO NmsWebTrackingLog (iWebTrackingLogId, iDeliveryId) SELECT iTrackingLogId, iDeliveryId
  FROM NmsTrackingLogRcp;
INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus) SELECT i, 1, 1 FROM generate_series(1, 3) i;
INSERT INTO NmsRcpGrpRel (iGroupId, iRecipientId) SELECT g, r FROM generate_series(1, 3) g, generate_series(1, 3) r;
INSERT INTO XtkWorkflow (iWorkflowId, iHistory, iState) SELECT i, 1, 20 FROM generate_series(1, 3) i;
INSERT INTO XtkWorkflowLog (iWorkflowLogId, iWorkflowId, tsLog) SELECT 10 * w + l, w, '2000-01-01'
  FROM generate_series(1, 3) w, generate_series(1, 3) l;
CREATE TABLE grp1 (i int); CREATE TABLE grp2 (i int); CREATE TABLE wkDlv_1 (i int); CREATE TABLE wkDlv_2 (i int);
  CREATE TABLE wkf1 (i int); CREATE TABLE wkf2_grp1 (i int);`
	all := []string{
		"deliveries 3", "logs 9", "coupons 9", "tracking 9", "web 9", "lists 3", "members 9", "steps 9", "grp1", "grp2",
		"wkdlv_1", "wkdlv_2", "wkf1", "wkf2_grp1",
	}
	for name, c := range map[string]struct {
		holds    rules.Holds
		retained []string
		onHold   int64
	}{
		"none": {rules.Holds{}, nil, 0},
		"deliveries": {
			rules.Holds{Deliveries: []int64{1, 77}},
			[]string{"deliveries 1", "logs 3", "coupons 3", "tracking 3", "web 3", "wkdlv_1"},
			13 + 3 + 6,
		},
		"lists":     {rules.Holds{Lists: []int64{1}}, []string{"lists 1", "members 3", "grp1", "wkf2_grp1"}, 4},
		"workflows": {rules.Holds{Workflows: []int64{1}}, []string{"steps 3", "wkf1"}, 3},
		"recipients": {
			rules.Holds{Recipients: []int64{1}},
			[]string{
				"deliveries 3", "logs 3", "tracking 3", "web 3", "lists 3", "members 3", "grp1", "grp2", "wkf2_grp1",
			},
			18 + 9,
		},
		"a table": {
			rules.Holds{Tables: heldTable("nmsbroadlogrcp")},
			[]string{"deliveries 3", "logs 9"},
			12 + 9,
		},
		"a parent": {rules.Holds{Tables: heldTable("nmsdelivery")}, []string{"deliveries 3"}, 3},
		"a paired table": {
			rules.Holds{Tables: heldTable("nmswebtrackinglog")},
			[]string{"deliveries 3", "tracking 9", "web 9"},
			21 + 18,
		},
		"a work table":   {rules.Holds{Tables: heldTable("wkf2_grp1")}, []string{"wkf2_grp1"}, 0},
		"a list's table": {rules.Holds{Tables: heldTable("grp1")}, []string{"lists 1", "grp1", "wkf2_grp1"}, 1},
		"everything":     {rules.Holds{Everything: true}, all, -1},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "deliveries", "recipients", "lists")
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(obsolete)
			c.holds.Names = []string{"a hold"}
			var onHold [2]int64
			var done [2]int64
			for i, change := range []func(*cleanup.Config){dry, nil} {
				j := newJournal(db)
				j.holds = func() rules.Holds { return c.holds }
				if err := runWith(t, j, change); err != nil {
					t.Fatal(err)
				}
				for task, left := range j.retained {
					onHold[i] += left.OnHold
					done[i] += j.deleted[task] + j.updated[task]
					if left.Rows() > 0 {
						t.Errorf("%s retained %+v, want only rows on hold", task, left)
					}
				}
			}
			got := db.Strings(
				`SELECT name || ' ' || n FROM (VALUES (1, 'deliveries', (SELECT count(*) FROM NmsDelivery
					WHERE iDeliveryId < 9)), (2, 'logs', (SELECT count(*)
					FROM NmsBroadLogRcp)), (3, 'coupons', (SELECT count(*) FROM NmsCouponValue)),
				(4, 'tracking', (SELECT count(*) FROM NmsTrackingLogRcp)), (5, 'web', (SELECT count(*)
					FROM NmsWebTrackingLog)), (6, 'lists', (SELECT count(*) FROM NmsGroup
					WHERE iGroupId < 9)), (7, 'members', (SELECT count(*) FROM NmsRcpGrpRel)),
				(8, 'steps', (SELECT count(*) FROM XtkWorkflowLog))) AS v (i, name, n) WHERE n > 0 ORDER BY i`,
			)
			got = append(got,
				db.Strings("SELECT relname::text FROM pg_class WHERE relname ~ '^(grp|wk)' ORDER BY 1")...)
			if !slices.Equal(got, c.retained) {
				t.Errorf("the retained rows and tables are %q, want %q", got, c.retained)
			}
			if onHold[0] != onHold[1] {
				t.Errorf("the dry run counted %d rows on hold, the run %d", onHold[0], onHold[1])
			}
			if c.onHold >= 0 && onHold[1] != c.onHold {
				t.Errorf("%d rows are on hold, want %d", onHold[1], c.onHold)
			}
			if done[0] != done[1] {
				t.Errorf("the dry run counted %d rows and tables, the run %d", done[0], done[1])
			}
			after := newJournal(db)
			if err := runWith(t, after, nil); err != nil {
				t.Fatal(err)
			}
			rest := db.Int(
				"SELECT count(*) - 2 FROM (SELECT FROM NmsDelivery UNION ALL SELECT FROM NmsGroup) AS owners") +
				db.Int("SELECT count(*) FROM XtkWorkflowLog") +
				db.Int("SELECT count(*) FROM pg_class WHERE relname ~ '^(grp|wk)'")
			if rest > 0 {
				t.Errorf("%d rows and tables remain after the holds were released", rest)
			}
		})
	}
}

// A partition with a row on hold is not dropped. A partition that is on hold by its name retains all rows.
func TestHoldsOfPartitions(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(mappings + `
DROP TABLE NmsTrackingLogRcp;
CREATE TABLE NmsTrackingLogRcp (iTrackingLogId bigint, iDeliveryId integer, iRecipientId integer, tsLog timestamptz,
  PRIMARY KEY (iTrackingLogId, tsLog)) PARTITION BY RANGE (tsLog);
CREATE TABLE tracking1 PARTITION OF NmsTrackingLogRcp FOR VALUES FROM (MINVALUE) TO ('2001-01-01');
CREATE TABLE tracking2 PARTITION OF NmsTrackingLogRcp FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
CREATE TABLE tracking3 PARTITION OF NmsTrackingLogRcp FOR VALUES FROM ('2002-01-01') TO (MAXVALUE);
INSERT INTO NmsTrackingLogRcp SELECT i, 1, i, date '2000-06-01' + 365 * (i % 3) FROM generate_series(1, 30) i;`)
	j := newJournal(db)
	j.holds = func() rules.Holds {
		return rules.Holds{Names: []string{"a", "b"}, Recipients: []int64{3}, Tables: heldTable("tracking2")}
	}
	if err := runWith(t, j, nil, "tracking-logs"); err != nil {
		t.Fatal(err)
	}
	checkRows(t, db, "SELECT tableoid::regclass || ' ' || count(*) FROM NmsTrackingLogRcp GROUP BY tableoid ORDER BY 1",
		"tracking1 1", "tracking2 10")
	j.checkRetained(t, "tracking-logs", purge.Retained{OnHold: 11})
}

// Tasks do not change options while XtkOption is on hold.
func TestHoldOfOptions(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO XtkOption (iOptionId, sName, tsTimeStampValue)
			VALUES (1, 'NmsCleanup_LastCleanup', '2000-01-01'), (2, 'NmsLastErrorStatCoalesce', '2000-01-01');
		INSERT INTO NmsEmailErrorStat (iMXIP, tsDate, iTotalErrors) VALUES (1, '2001-01-01', 50), (1, '2001-01-02', 50)`,
	)
	for _, onHold := range []bool{true, false} {
		j := newJournal(db)
		if onHold {
			j.holds = func() rules.Holds {
				return rules.Holds{Names: []string{"a"}, Tables: heldTable("xtkoption")}
			}
		}
		if err := runWith(t, j, nil, "npai", "email-error-stats"); err != nil {
			t.Fatal(err)
		}
		changed := db.Int("SELECT count(*) FROM XtkOption WHERE tsTimeStampValue > '2000-01-01'")
		rows := db.Int("SELECT count(*) FROM NmsEmailErrorStat")
		counted := j.retained["email-error-stats"].OnHold
		if onHold != (changed == 0) {
			t.Errorf("on hold: %t: %d options were changed", onHold, changed)
		}
		if onHold != (rows == 2) {
			t.Errorf("on hold: %t: %d rows of NmsEmailErrorStat remain of 2", onHold, rows)
		}
		if onHold != (counted == 2) {
			t.Errorf("on hold: %t: %d rows are counted as on hold", onHold, counted)
		}
	}
}

// A work table with a partition on hold is not dropped.
func TestHoldsOfPartitionsOfWorkTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (1, 20); INSERT INTO NmsDelivery (iDeliveryId, iState)
			VALUES (1, 95);
		CREATE TABLE wkf1_1 (i integer) PARTITION BY LIST (i); CREATE TABLE middle PARTITION OF wkf1_1 FOR
			VALUES IN (1) PARTITION BY LIST (i); CREATE TABLE part PARTITION OF middle DEFAULT;
		CREATE TABLE wkf1_2 (i integer) PARTITION BY LIST (i); CREATE TABLE rest PARTITION OF wkf1_2 DEFAULT`,
	)
	j := newJournal(db)
	j.holds = func() rules.Holds {
		return rules.Holds{Names: []string{"a"}, Tables: heldTable("part")}
	}
	if err := runWith(t, j, nil, "workflow-instances"); err != nil {
		t.Fatal(err)
	}
	checkRows(
		t,
		db,
		"SELECT relname::text FROM pg_class WHERE relname LIKE 'wkf%' OR relname IN ('middle', 'part', 'rest') ORDER "+
			"BY 1",
		"middle",
		"part",
		"wkf1_1",
	)
}

// A work table with a row of a recipient on hold is not dropped, and neither is a table that cannot be read. The list
// of such a table is retained.
func TestHoldsOfRecipientsInWorkTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO NmsDelivery (iDeliveryId) VALUES (0); INSERT INTO XtkWorkflow (iWorkflowId, iState)
			VALUES (0, 0); INSERT INTO NmsSimulation (iSimulationId) VALUES (99);
		INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus) SELECT i, 1, CASE WHEN i > 0 THEN 1 ELSE 0 END
			FROM generate_series(0, 5) i`,
	)
	prefixes, drops := []string{"grp", "grp1", "wkdlv_1", "wkf1", "wkfhisto1", "wksimu_1"}, []string{
		"lists-to-delete", "work-tables", "workflow-instances", "orphan-work-tables", "simulation-tables",
	}
	for _, prefix := range prefixes {
		db.Do(
			strings.ReplaceAll(
				`CREATE TABLE ?1 AS SELECT 7 AS iRecipientId; CREATE TABLE ?2 AS SELECT 8 AS iRecipientId;
					CREATE TABLE ?3 AS SELECT 7 AS iId, '7'::text AS sRecipientId;
			CREATE TABLE ?4 (iRecipientId numeric) PARTITION BY LIST (iRecipientId);
				CREATE TABLE part_of_?4 PARTITION OF ?4 DEFAULT; INSERT INTO ?4 VALUES (9), (8);
			CREATE TABLE ?5 (iRecipientId bigint); REVOKE SELECT ON ?5 FROM CURRENT_USER`,
				"?",
				prefix,
			),
		)
	}
	db.Do(
		"CREATE VIEW wkf11_v AS SELECT * FROM wkf11; CREATE TABLE wkf17 (iRecipientId text); INSERT INTO wkf17 " +
			"VALUES ('8'), ('77'), ('none'), (NULL)",
	)
	texts := []string{"wkf10_c", "wkf10_t", "wkf10_v"} // the recipient 7 as a text
	db.Do(
		"CREATE TABLE wkf10_t (iRecipientId text); INSERT INTO wkf10_t VALUES (''), ('7'); CREATE TABLE wkf10_c " +
			"(iRecipientId char(9)); INSERT INTO wkf10_c VALUES (' 7'); CREATE TABLE wkf10_v (iRecipientId " +
			"varchar(9)); INSERT INTO wkf10_v VALUES ('7.0')",
	)
	for _, c := range []struct {
		holds    rules.Holds
		retained []string
		onHold   int64
	}{
		{rules.Holds{Names: []string{"a"}, Recipients: []int64{7, 9}}, []string{"1", "4", "5"}, 2},
		{rules.Holds{}, nil, 0},
	} {
		dryRun, j := newJournal(db), newJournal(db)
		dryRun.holds = func() rules.Holds { return c.holds }
		j.holds = dryRun.holds
		if err := cmp.Or(runWith(t, dryRun, dry, drops...), runWith(t, j, nil, drops...)); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(dryRun.deleted, j.deleted) {
			t.Errorf("%+v: the dry run counted %v, the run %v", c.holds, dryRun.deleted, j.deleted)
		}
		if !maps.Equal(dryRun.retained, j.retained) {
			t.Errorf("%+v: the dry run retained %v, the run %v", c.holds, dryRun.retained, j.retained)
		}
		var want []string
		for _, prefix := range prefixes {
			for _, id := range c.retained {
				want = append(want, prefix+id)
			}
		}
		if c.onHold > 0 {
			want = append(want, texts...)
		}
		slices.Sort(want)
		if left := db.Strings(relationsLeft); !slices.Equal(left, want) {
			t.Errorf("%+v: the remaining tables are %q, want %q", c.holds, left, want)
		}
		lists := db.Strings("SELECT iGroupId::text FROM NmsGroup WHERE iGroupId > 0 ORDER BY 1")
		if !slices.Equal(lists, c.retained) {
			t.Errorf("%+v: the retained lists are %q, want %q", c.holds, lists, c.retained)
		}
		if got := j.retained["lists-to-delete"].OnHold; got != c.onHold {
			t.Errorf("%+v: %d lists are on hold, want %d", c.holds, got, c.onHold)
		}
		for _, of := range []*journal{dryRun, j} {
			want := c.onHold > 0
			if got := of.said("INFO", "6 tables wkf", "are on hold"); got != want {
				t.Errorf("%+v: the log has the tables on hold: %t, want %t; it is %q", c.holds, got, want, of.logs)
			}
			if got := of.said("WARNING", "wkf15", "permission denied"); got != want {
				t.Errorf("%+v: the log has the unreadable table: %t, want %t; it is %q", c.holds, got, want, of.logs)
			}
		}
	}
}

// A work table that gets a row of a recipient on hold after it was found to be unused stays.
func TestHoldsOfRecipientsInWorkTablesInMidRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkWorkflow (iWorkflowId) VALUES (1); CREATE VIEW wkf12_view AS SELECT 1;
		CREATE TABLE wkf12_1 (iRecipientId int); CREATE TABLE wkf12_2 (iRecipientId int)`)
	// views are dropped before tables
	db.Superuser(`CREATE FUNCTION add() RETURNS event_trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO wkf12_1 VALUES (7); END';
		CREATE EVENT TRIGGER add ON sql_drop WHEN tag IN ('DROP VIEW') EXECUTE FUNCTION add()`)
	j := newJournal(db)
	j.holds = func() rules.Holds { return rules.Holds{Names: []string{"a"}, Recipients: []int64{7}} }
	if err := runWith(t, j, nil, "workflow-instances"); err != nil {
		t.Fatal(err)
	}
	if left := db.Strings(relationsLeft); !slices.Equal(left, []string{"wkf12_1"}) {
		t.Errorf("the remaining tables are %q, want only the one with a row of the recipient on hold", left)
	}
	j.checkLog(t, "INFO", "wkf12_1 is now on hold: not dropped")
}

// A delivery on hold, or with a row on hold, is not purged on its mid-sourcing server. Other deliveries are deleted on
// both servers.
func TestHoldsOnMidSourcingServers(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	here.Do(
		"UPDATE NmsDelivery SET iDeliveryProviderId = 1 WHERE iDeliveryId = 2; UPDATE NmsBroadLogRcp SET " +
			"iRecipientId = iDeliveryId",
	)
	there.Do("INSERT INTO NmsDelivery (iDeliveryId, iState) VALUES (199, 95)")
	j := newJournal(here)
	j.holds = func() rules.Holds {
		return rules.Holds{Names: []string{"a", "b"}, Deliveries: []int64{1, 102}, Recipients: []int64{2}}
	}
	if err := runWith(
		t, j, func(c *cleanup.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool} },
		"deliveries",
	); err != nil {
		t.Fatal(err)
	}
	checkRows(t, here, deliveriesLeft, "1", "2", "4")
	checkRows(t, here, logsLeft, "1", "2", "4")
	checkRows(t, there, deliveriesLeft, "0", "1", "101", "102", "103", "104")
	checkCount(t, there, 75, "SELECT iState FROM NmsDelivery WHERE iDeliveryId = 101")
}

// In tables of policies, the columns that put rows on hold may have other types, and names that need quotes. Rows with
// other values in them are deleted.
func TestHoldsByColumnsOfOtherTypes(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	held := map[string]int64{} // rows on hold, by table
	var policies []policy.Policy
	for column, values := range map[string][3]string{ // of two rows on hold, and of another one
		`"iRecipientId" bigint`: {"7", "7", "8"}, "iRecipientId text": {" 7", "7.0", "seven"},
		"iRecipientId numeric": {"7", "7.00", "7.5"}, `"iRecipientId" varchar`: {"7", "007", "77"},
		"iRecipientId uuid":  {"", "", "77777777-7777-7777-7777-777777777777"},
		"iRecipientId jsonb": {"7", "7.0", "[7]"}, "iWorkflowId text": {"7", "7", ""},
	} {
		table := fmt.Sprint("t", len(policies))
		db.Do("CREATE TABLE " + table + " (id int, at date, " + column + ")")
		held[table] = 0
		for id, value := range values {
			if value != "" || id == 2 {
				db.Do("INSERT INTO " + table + " SELECT " + fmt.Sprint(id) + ", '2020-01-01', '" + value + "'")
			}
			if value != "" && id < 2 {
				held[table]++
			}
		}
		policies = append(policies,
			policy.Policy{Name: table, Table: table, OlderThan: &policy.OlderThan{Column: "at", Days: new(1)}})
	}
	for _, dryRun := range []bool{true, false} {
		j := newJournal(db)
		j.holds = func() rules.Holds {
			return rules.Holds{Names: []string{"a hold"}, Recipients: []int64{7}, Workflows: []int64{7}}
		}
		if err := runPoliciesWith(t, j, dryRun, policies...); err != nil {
			t.Fatal(err)
		}
		for table, rows := range held {
			j.checkRetained(t, "policy/"+table, purge.Retained{OnHold: rows})
			j.checkDeleted(t, "policy/"+table, 1)
		}
	}
	for table, rows := range held {
		checkCount(t, db, rows, "SELECT count(*) FROM "+table)
	}
}
