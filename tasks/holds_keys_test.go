package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// A row is retained if deleting it makes foreign keys delete or change a row on hold, over any number of keys, in any
// schema, and with partitioned tables. The other rows are deleted.
func TestHoldsThatKeysReach(t *testing.T) {
	t.Parallel()
	chain := func(length int) string {
		sql := "CREATE TABLE k0 (id int PRIMARY KEY REFERENCES NmsVisitor (iVisitorId) ON DELETE CASCADE, " +
			"iRecipientId int); INSERT INTO k0 SELECT i, 0 FROM generate_series(1, 3) i;"
		for i := 1; i < length; i++ {
			sql += fmt.Sprintf(
				"CREATE TABLE k%d (id int PRIMARY KEY REFERENCES k%d ON DELETE CASCADE, iRecipientId int); INSERT "+
					"INTO k%[1]d SELECT i, 0 FROM generate_series(1, 3) i;",
				i,
				i-1,
			)
		}
		return sql + fmt.Sprintf("UPDATE k%d SET iRecipientId = 7 WHERE id = 2", length-1)
	}
	const order = " (id int, visitor int REFERENCES NmsVisitor (iVisitorId) ON DELETE CASCADE, iRecipientId int); " +
		"INSERT INTO %[1]s VALUES (1, 1, 6), (2, 2, 7), (3, NULL, 7)"
	for name, c := range map[string]struct {
		setup    string
		holds    rules.Holds
		retained []int64 // the visitors from 1 to 3 that are retained
		note     string  // part of a log line, empty if nothing is logged
	}{
		"five keys":         {chain(5), rules.Holds{Recipients: []int64{7}}, []int64{2}, ""},
		"nine keys":         {chain(9), rules.Holds{Recipients: []int64{7}}, []int64{2}, ""},
		"a table at an end": {chain(6), rules.Holds{Tables: heldTable("k5")}, []int64{1, 2, 3}, ""},
		"another schema": {
			"CREATE SCHEMA ext; CREATE TABLE ext.orders" + fmt.Sprintf(order, "ext.orders"),
			rules.Holds{Recipients: []int64{7}},
			[]int64{2},
			"",
		},
		"a table of another schema": {
			"CREATE SCHEMA ext; CREATE TABLE ext.orders" + fmt.Sprintf(order, "ext.orders"),
			rules.Holds{Tables: []rules.HeldTable{{Schema: "ext", Name: "orders"}}},
			[]int64{1, 2},
			"",
		},
		"by way of another schema": {
			"CREATE SCHEMA ext; CREATE TABLE ext.middle (id int PRIMARY KEY REFERENCES NmsVisitor (iVisitorId) ON " +
				"DELETE CASCADE); INSERT INTO ext.middle VALUES (1), (2); CREATE TABLE last (id int REFERENCES " +
				"ext.middle ON DELETE SET NULL, iRecipientId int); INSERT INTO last VALUES (1, 6), (2, 7)",
			rules.Holds{Recipients: []int64{7}},
			[]int64{2},
			"",
		},
		"a partitioned child": {
			"CREATE TABLE orders (id int, visitor int REFERENCES NmsVisitor (iVisitorId) ON DELETE CASCADE, " +
				"iRecipientId int) PARTITION BY LIST (id); CREATE TABLE orders_p PARTITION OF orders DEFAULT; INSERT " +
				"INTO orders VALUES (1, 1, 6), (2, 2, 7)",
			rules.Holds{Recipients: []int64{7}},
			[]int64{2},
			"",
		},
		"a key of one partition": {
			"CREATE TABLE orders (id int, visitor int, iRecipientId int) PARTITION BY LIST (id); CREATE TABLE " +
				"orders_p PARTITION OF orders DEFAULT; ALTER TABLE orders_p ADD FOREIGN KEY (visitor) REFERENCES " +
				"NmsVisitor (iVisitorId) ON DELETE CASCADE; INSERT INTO orders VALUES (1, 1, 6), (2, 2, 7)",
			rules.Holds{Recipients: []int64{7}},
			[]int64{2},
			"",
		},
		"a circle": {
			"ALTER TABLE NmsVisitor ADD parent int REFERENCES NmsVisitor (iVisitorId) ON DELETE CASCADE; UPDATE " +
				"NmsVisitor SET parent = 1 WHERE iVisitorId = 2; CREATE TABLE orders" + fmt.Sprintf(order, "orders"),
			rules.Holds{Recipients: []int64{7}},
			[]int64{1, 2},
			"rows of nmsvisitor are retained if the chain of rows that refer to them is too long to follow, through nmsvisitor",
		},
		"keys that are compared by an operator off the search path": {
			"CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext; ALTER TABLE NmsVisitor ADD email ext.citext UNIQUE; " +
				"UPDATE NmsVisitor SET email = 'Visitor ' || iVisitorId; CREATE TABLE login (name ext.citext PRIMARY KEY, email " +
				"ext.citext REFERENCES NmsVisitor (email) ON DELETE CASCADE); INSERT INTO login VALUES ('Ann', 'VISITOR 1'), " +
				"('Bob', 'VISITOR 2'); CREATE TABLE session (login ext.citext REFERENCES login ON DELETE CASCADE, " +
				"iRecipientId int); INSERT INTO session VALUES ('ANN', 6), ('BOB', 7)",
			rules.Holds{Recipients: []int64{7}},
			[]int64{2},
			"",
		},
		"a key that nothing on hold has": {
			"CREATE SCHEMA ext; CREATE TABLE ext.note (visitor int REFERENCES " +
				"NmsVisitor (iVisitorId) ON DELETE CASCADE); INSERT INTO ext.note VALUES (1); REVOKE ALL ON SCHEMA ext " +
				"FROM PUBLIC",
			rules.Holds{Recipients: []int64{7}},
			nil,
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "nine keys", "a table of another schema", "by way of another schema",
				"a key of one partition", "a circle", "keys that are compared by an operator off the search path")
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(
				"INSERT INTO NmsVisitor (iVisitorId, tsLastModified) SELECT i, '2000-01-01' FROM generate_series(0, " +
					"3) i; " + c.setup,
			)
			c.holds.Names = []string{"a hold"}
			for _, change := range []func(*cleanup.Config){dry, nil} {
				j := newJournal(db)
				j.holds = func() rules.Holds { return c.holds }
				if err := runWith(t, j, change, "visitors"); err != nil {
					t.Fatal(err)
				}
				warned := slices.ContainsFunc(j.logs,
					func(line string) bool { return strings.Contains(line, "while there are holds, ") })
				if got := j.retained["visitors"].OnHold; got != int64(len(c.retained)) {
					t.Errorf("%d rows are on hold, want %d", got, len(c.retained))
				}
				if want := c.note != ""; warned != want {
					t.Errorf("a warning of keys that are not followed: %t, want %t; the log is %q", warned, want,
						j.logs)
				}
				if !strings.Contains(fmt.Sprint(j.logs), c.note) {
					t.Errorf("the log is %q, want %q in it", j.logs, c.note)
				}
			}
			got := db.Strings("SELECT iVisitorId::text FROM NmsVisitor WHERE iVisitorId <> 0 ORDER BY 1")
			if want := strings.Fields(strings.Trim(fmt.Sprint(c.retained), "[]")); !slices.Equal(got, want) {
				t.Errorf("the retained visitors are %q, want %q", got, want)
			}
		})
	}
}

// A row is retained if a foreign key leads to rows that the role cannot see and that may be on hold. The log names the
// missing right. Without a hold, it is deleted.
func TestHoldsThatKeysReachOutOfSight(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO NmsVisitor (iVisitorId, tsLastModified) SELECT i, '2000-01-01' FROM generate_series(0, 3) i")
	db.Superuser("CREATE SCHEMA hidden; CREATE TABLE hidden.orders (visitor int REFERENCES NmsVisitor (iVisitorId) ON " +
		"DELETE CASCADE, iRecipientId int); INSERT INTO hidden.orders VALUES (2, 7)")
	const left = "SELECT count(*) FROM NmsVisitor WHERE iVisitorId <> 0"
	for _, c := range []struct{ hide, help string }{
		{"REVOKE ALL ON SCHEMA hidden FROM PUBLIC", `GRANT USAGE ON SCHEMA "hidden"`},
		{"GRANT USAGE ON SCHEMA hidden TO PUBLIC", `GRANT SELECT ON "hidden"."orders"`},
		{"GRANT SELECT ON hidden.orders TO PUBLIC; ALTER TABLE hidden.orders ENABLE ROW LEVEL SECURITY", "BYPASSRLS"},
	} {
		db.Superuser(c.hide)
		j := newJournal(db)
		j.holds = func() rules.Holds { return rules.Holds{Names: []string{"a hold"}, Recipients: []int64{7}} }
		if err := runWith(t, j, nil, "visitors"); err != nil {
			t.Fatal(err)
		}
		checkCount(t, db, 3, left)
		j.checkLog(t, c.help)
	}
	mustRun(t, db, nil, "visitors")
	checkCount(t, db, 0, left)
}

// A row is also retained if its paired row has dependent rows on hold. Statistics are not rolled up if one of them has.
func TestHoldsThatKeysReachByOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		mappings + `INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog) SELECT i, '2000-01-01'
			FROM generate_series(1, 3) i; INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) VALUES (1), (2), (3);
		CREATE TABLE orders (log int REFERENCES NmsWebTrackingLog (iWebTrackingLogId) ON DELETE CASCADE,
			iRecipientId int); INSERT INTO orders VALUES (1, 6), (2, 7);
		ALTER TABLE NmsEmailErrorStat ADD id serial UNIQUE;
			INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors)
			VALUES (1, 1, '2001-01-01', 50), (1, 1, '2001-01-02', 50);
		CREATE TABLE note (stat int REFERENCES NmsEmailErrorStat (id) ON DELETE CASCADE, iRecipientId int);
			INSERT INTO note VALUES (1, 7)`,
	)
	for _, c := range []struct {
		holds rules.Holds
		left  string
	}{
		{rules.Holds{Names: []string{"a hold"}, Recipients: []int64{7}}, "logs 2, web 2, orders 2, stats 2, notes 1"},
		{rules.Holds{}, "logs NULL, web NULL, orders NULL, stats 1, notes 0"},
	} {
		j := newJournal(db)
		j.holds = func() rules.Holds { return c.holds }
		if err := runWith(t, j, nil, "tracking-logs", "email-error-stats"); err != nil {
			t.Fatal(err)
		}
		left := db.Strings(`SELECT concat('logs ', COALESCE((SELECT string_agg(iTrackingLogId::text, ' ')
			FROM NmsTrackingLogRcp), 'NULL'), ', web ', COALESCE((SELECT string_agg(iWebTrackingLogId::text, ' ')
			FROM NmsWebTrackingLog), 'NULL'),
			', orders ', COALESCE((SELECT string_agg(log::text, ' ')
				FROM orders), 'NULL'), ', stats ', (SELECT count(*)
				FROM NmsEmailErrorStat), ', notes ', (SELECT count(*) FROM note))`)[0]
		if left != c.left {
			t.Errorf("%+v: the remaining rows are %s, want %s", c.holds, left, c.left)
		}
	}
}
