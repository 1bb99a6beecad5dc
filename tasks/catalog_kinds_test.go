package tasks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// catalogCase is a database with an unusual catalog, and the expected outcome of a task. docs/reference/catalog.md
// lists the decisions.
type catalogCase struct {
	setup string // SQL of the application's role
	super string // SQL of the superuser, afterwards

	deleted  int64
	retained purge.Retained
	left     []string // result of the test's query
	said     string   // part of the log; may be empty
	problem  string   // part of the error; may be empty
}

// tryCatalogs runs a task in each database, and checks that a dry run counts the same rows and changes nothing. left is
// a query for the remaining rows. If some cases are named, the others are part of the suite long.
func tryCatalogs(t *testing.T, task, left string, cases map[string]catalogCase, quick ...string) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if quick != nil {
				suite.Except(t, suite.Long, quick...)
			}
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(c.setup)
			if c.super != "" {
				db.Superuser(c.super)
			}
			super := db.For("postgres")
			before := super.Strings(left)
			dryRun, err := run(t, db, dry, task)
			if after := super.Strings(left); !slices.Equal(after, before) {
				t.Errorf("a dry run left %q of %q", after, before)
			}
			unpredicted := c.retained.Failed + c.retained.Suppressed // a dry run counts such rows
			if c.problem == "" && (err != nil || dryRun.deleted[task] != c.deleted+unpredicted) {
				t.Errorf("a dry run counts %d: %v", dryRun.deleted[task], err)
			}
			j, err := run(t, db, nil, task)
			if got := super.Strings(left); !slices.Equal(got, c.left) {
				t.Errorf("left %q, want %q", got, c.left)
			}
			if j.deleted[task] != c.deleted || j.retained[task] != c.retained {
				t.Errorf("%d rows deleted, %+v retained", j.deleted[task], j.retained[task])
			}
			if (err == nil) != (c.problem == "") || (err != nil && !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("the error %v", err)
			}
			if c.said != "" && !j.said(c.said) {
				t.Errorf("%q", j.logs)
			}
			if t.Failed() {
				t.Logf("%q", j.logs)
			}
		})
	}
}

const (
	// someVisitors are the zero record, two obsolete visitors, and another one.
	someVisitors = "INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (0, '2000-01-01'), " +
		"(1, '2000-01-01'), (2, '2000-01-01'), (3, '2026-02-28'); "
	visitorsLeft = "SELECT iVisitorId::text FROM NmsVisitor ORDER BY 1"

	// someDeliveries are two obsolete deliveries, one of them with a log, another delivery, and the zero records.
	someDeliveries = mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iState)
			VALUES (0, 0, NULL, 0), (1, 1, '2000-01-01', 95), (2, 1, '2000-01-01', 95), (3, 0, NULL, 95);
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsLastModified)
			VALUES (0, 1, '2026-02-28'), (1, 1, '2026-02-28'), (3, 3, '2026-02-28'); `
	deliveriesAndLogs = "SELECT 'delivery ' || iDeliveryId FROM NmsDelivery UNION ALL SELECT 'log ' || iBroadLogId " +
		"FROM NmsBroadLogRcp ORDER BY 1"
)

// Results of deliveriesAndLogs: before a run, after a run that retains the delivery with the log, and after a run that
// retains nothing.
var (
	allLeft     = []string{"delivery 0", "delivery 1", "delivery 2", "delivery 3", "log 0", "log 1", "log 3"}
	withLog     = []string{"delivery 0", "delivery 1", "delivery 3", "log 0", "log 1", "log 3"}
	withoutBoth = []string{"delivery 0", "delivery 3", "log 0", "log 3"}
)

// A domain counts as the type that it is based on, at any depth: for an id, for a link, and for a date without a zone.
func TestDomains(t *testing.T) {
	t.Parallel()
	const ids = "CREATE DOMAIN number AS integer; CREATE DOMAIN id AS number CHECK (VALUE IS NOT NULL); "
	tryCatalogs(t, "visitors", visitorsLeft, map[string]catalogCase{
		"an id": {
			setup:   ids + "ALTER TABLE NmsVisitor ALTER iVisitorId TYPE id; " + someVisitors,
			deleted: 2, left: []string{"0", "3"},
		},
		"a date": {
			setup: "CREATE DOMAIN moment AS timestamp; ALTER TABLE NmsVisitor ALTER tsLastModified TYPE moment; " +
				"INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue) VALUES (1, 'WdbcTimeZone', 6, " +
				"'America/New_York'); INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES " +
				"(1, '2026-01-30 08:00'), (2, '2026-01-30 06:00')",
			deleted: 1, left: []string{"1"},
		},
	})
	tryCatalogs(t, "deliveries", deliveriesAndLogs, map[string]catalogCase{
		"a link": {
			setup: ids + someDeliveries + "ALTER TABLE NmsDelivery ALTER iDeliveryId TYPE id; ALTER TABLE " +
				"NmsBroadLogRcp ALTER iBroadLogId TYPE id, ALTER iDeliveryId TYPE id",
			deleted: 3, left: withoutBoth,
		},
		"a link of a skipped log": {
			setup: ids + someDeliveries + "ALTER TABLE NmsBroadLogRcp ALTER iDeliveryId TYPE id, DROP iStatus",
			said:  "1 row of nmsdelivery is retained", deleted: 1, left: withLog,
			retained: purge.Retained{Dependent: 1, Tables: 1},
		},
	})
}

// A table whose id is not an integer is not touched, because its zero record cannot be recognized. Deliveries that may
// have rows in it are retained.
func TestIDsThatAreNoIntegers(t *testing.T) {
	t.Parallel()
	const left = "to have the table cleaned: ALTER TABLE"
	someAndNothing := map[string]catalogCase{}
	for _, sqlType := range []string{"numeric(12)", "double precision", "text"} {
		someAndNothing[sqlType] = catalogCase{
			setup: someVisitors + "ALTER TABLE NmsVisitor ALTER iVisitorId DROP DEFAULT, ALTER iVisitorId TYPE " +
				sqlType,
			said:     left,
			left:     []string{"0", "1", "2", "3"},
			retained: purge.Retained{Tables: 1},
		}
	}
	tryCatalogs(t, "visitors", visitorsLeft, someAndNothing, "text")
	const part = "INSERT INTO NmsDeliveryPart (iDeliveryPartId, iDeliveryId) VALUES (1, 2); ALTER TABLE " +
		"NmsDeliveryPart ALTER iDeliveryPartId DROP DEFAULT, ALTER iDeliveryPartId TYPE text"
	tryCatalogs(t, "deliveries", deliveriesAndLogs, map[string]catalogCase{
		"deliveries": {
			setup: someDeliveries + "ALTER TABLE NmsDelivery ALTER iDeliveryId TYPE numeric",
			said:  left, left: allLeft, retained: purge.Retained{Tables: 1},
		},
		"what depends on a delivery": {
			setup: someDeliveries + part, said: left, deleted: 2, retained: purge.Retained{Dependent: 1, Tables: 1},
			left: []string{"delivery 0", "delivery 2", "delivery 3", "log 0", "log 3"},
		},
		"a link, too": {
			setup: someDeliveries + part + "; ALTER TABLE NmsDeliveryPart ALTER iDeliveryId DROP DEFAULT, ALTER " +
				"iDeliveryId TYPE text",
			said: "its column iDeliveryId is not an integer", left: allLeft,
			retained: purge.Retained{Dependent: 2, Tables: 1},
		},
		"a link of a skipped log": {
			setup: someDeliveries + "ALTER TABLE NmsBroadLogRcp ALTER iDeliveryId TYPE numeric, DROP iStatus",
			said:  "its column iDeliveryId is not an integer", left: allLeft,
			retained: purge.Retained{Dependent: 2, Tables: 1},
		},
		"a link alone": {
			setup:   someDeliveries + "ALTER TABLE NmsBroadLogRcp ALTER iDeliveryId TYPE numeric",
			deleted: 3, left: withoutBoth,
		},
	}, "deliveries", "what depends on a delivery", "a link, too")
}

// A view or a partition with the name of a table is not touched. Deliveries that may have rows in it are retained, and
// options that it may have do not get their defaults.
func TestViewsAndPartitionsWithNamesOfTables(t *testing.T) {
	t.Parallel()
	renamed := func(table, as string) string {
		return "ALTER TABLE " + table + " RENAME TO behind; CREATE " + as + " " + table + " AS SELECT * FROM behind"
	}
	alone := purge.Retained{Dependent: 1, Tables: 1}
	cases := map[string]catalogCase{
		"a log that is a view": {
			setup: someDeliveries + renamed("NmsBroadLogRcp", "VIEW"),
			said:  "is a view, not a table", deleted: 1, retained: alone, left: withLog,
		},
		"a log that is a view without deliveries": {
			setup: someDeliveries + "ALTER TABLE NmsBroadLogRcp RENAME TO behind; CREATE VIEW NmsBroadLogRcp AS " +
				"SELECT iBroadLogId FROM behind",
			said: "is a view, not a table", deleted: 2, retained: purge.Retained{Tables: 1},
			left: []string{"delivery 0", "delivery 3", "log 0", "log 1", "log 3"},
		},
		"a log that is a materialized view": {
			setup: someDeliveries + renamed("NmsBroadLogRcp", "MATERIALIZED VIEW"), said: "which may hide dependent rows",
			retained: purge.Retained{Dependent: 2, Tables: 1}, left: allLeft,
		},
		"a log that is a partition": {
			setup: someDeliveries +
				"CREATE TABLE every_log (LIKE NmsBroadLogRcp) PARTITION BY RANGE (tsLastModified); " +
				"ALTER TABLE every_log ATTACH PARTITION NmsBroadLogRcp DEFAULT",
			said:     "is a partition of every_log, not a table",
			deleted:  1,
			retained: alone,
			left:     withLog,
		},
		"the mappings": {
			setup: someDeliveries + renamed("NmsDeliveryMapping", "VIEW"), left: allLeft,
			problem: "NmsDeliveryMapping is a view, not a table",
		},
		"the deliveries": {
			setup: someDeliveries + renamed("NmsDelivery", "VIEW"), said: "NmsDelivery is a view, not a table",
			retained: purge.Retained{Tables: 1}, left: allLeft,
		},
	}
	for table, row := range map[string]string{
		"NmsDeliveryPart":   "iDeliveryPartId, iDeliveryId) VALUES (1, 1",
		"NmsWebTrackingLog": "iWebTrackingLogId, iDeliveryId) VALUES (1, 1",
		"NmsPropositionRcp": "iPropositionId, iDeliveryId) VALUES (1, 1",
	} {
		cases[table] = catalogCase{
			setup:   someDeliveries + "INSERT INTO " + table + " (" + row + "); " + renamed(table, "VIEW"),
			said:    "is a view, not a table",
			deleted: 1, retained: alone, left: withLog,
		}
	}
	cases["NmsCouponValue"] = catalogCase{
		setup: someDeliveries + renamed("NmsCouponValue", "VIEW"), said: "may have rows of their messages",
		retained: purge.Retained{Dependent: 2, Tables: 1}, left: allLeft,
	}
	tryCatalogs(t, "deliveries", deliveriesAndLogs, cases, "a log that is a view", "a log that is a materialized view",
		"a log that is a partition", "the mappings", "the deliveries", "NmsPropositionRcp", "NmsCouponValue")
	tryCatalogs(t, "tracking-logs", "SELECT iTrackingLogId::text FROM NmsTrackingLogRcp", map[string]catalogCase{
		"paired rows": {
			setup: mappings + "INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog) VALUES (1, '2000-01-01'); " +
				renamed("NmsWebTrackingLog", "VIEW"),
			said: "deleted together with rows of", left: []string{"1"},
			retained: purge.Retained{Tables: 2},
		},
	})
	const delay = "INSERT INTO XtkOption (iOptionId, sName, iDataType, iLongValue) VALUES (7, " +
		"'NmsCleanup_VisitorPurgeDelay', 3, 864000000); "
	tryCatalogs(t, "visitors", visitorsLeft, map[string]catalogCase{
		"the options": {
			setup: someVisitors + delay + renamed("XtkOption", "VIEW"), said: "XtkOption is a view, not a table",
			left: []string{"0", "1", "2", "3"},
		},
		"the options without a zone": {
			setup: "ALTER TABLE NmsVisitor ALTER tsLastModified TYPE timestamp; " + someVisitors + delay +
				renamed("XtkOption", "VIEW"),
			said: "could not determine the zone of dates without a time zone", left: []string{"0", "1", "2", "3"},
		},
	}, "the options", "the options without a zone")
	const addresses = "INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES (7, 2, '2026-01-01'); "
	tryCatalogs(t, "npai", "SELECT iAddressId::text FROM NmsAddress", map[string]catalogCase{
		"the last cleanup": {
			setup: addresses + renamed("XtkOption", "VIEW"), left: []string{"7"},
			said: "skipped nmsaddress: cannot tell when the last cleanup ran: XtkOption is a view, not a table",
		},
	})
}

// partitionedAudit makes the audit trail a partitioned table. The zero record and two obsolete rows are in a partition
// of a partition, another row is in a partition of the table.
const partitionedAudit = `CREATE TABLE old AS SELECT * FROM XtkAudit; DROP TABLE XtkAudit;
	CREATE TABLE XtkAudit (LIKE old) PARTITION BY RANGE (tsChanged); ALTER TABLE XtkAudit ALTER iAuditId SET NOT NULL;
	CREATE TABLE middle PARTITION OF XtkAudit FOR VALUES FROM (MINVALUE) TO ('2026-01-01') PARTITION BY LIST (iAuditId);
	CREATE TABLE audit1 PARTITION OF middle DEFAULT; CREATE TABLE audit2 PARTITION OF XtkAudit DEFAULT;
	CREATE UNIQUE INDEX ON audit1 (iAuditId); CREATE UNIQUE INDEX ON audit2 (iAuditId);
	INSERT INTO XtkAudit (iAuditId, tsChanged)
		VALUES (0, '2000-01-01'), (1, '2000-01-01'), (2, '2000-01-01'), (3, '2026-02-28'); `

// inheritedAudit has the same rows in the table and a child.
const inheritedAudit = `CREATE TABLE audit1 (LIKE XtkAudit INCLUDING INDEXES) INHERITS (XtkAudit);
	INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (3, '2026-02-28');
	INSERT INTO audit1 (iAuditId, tsChanged) VALUES (0, '2000-01-01'), (1, '2000-01-01'), (2, '2000-01-01'); `

const auditLeft = "SELECT iAuditId::text FROM XtkAudit ORDER BY 1"

// A row security policy of a partition hides rows of the table, and one of the table also protects rows in its
// partitions.
func TestRowSecurityOfPartitions(t *testing.T) {
	t.Parallel()
	policy := func(table string) string {
		return "ALTER TABLE " + table + " ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY p ON " +
			table + " USING (iAuditId <> 1)"
	}
	const hidden = "row security may hide rows of xtkaudit"
	all, alone := []string{"0", "1", "2", "3"}, purge.Retained{Tables: 1}
	tryCatalogs(t, "audit-trail", auditLeft, map[string]catalogCase{
		"none":   {setup: partitionedAudit, deleted: 2, left: []string{"0", "3"}},
		"table":  {setup: partitionedAudit + policy("XtkAudit"), said: hidden, left: all, retained: alone},
		"middle": {setup: partitionedAudit + policy("middle"), said: hidden, left: all, retained: alone},
		"partition": {
			setup: partitionedAudit + policy("audit1"), said: hidden, deleted: 1, left: []string{"0", "1", "3"},
			retained: alone,
		},
		"parent": {setup: inheritedAudit + policy("XtkAudit"), said: hidden, left: all, retained: alone},
		"child": {
			setup: inheritedAudit + policy("audit1"), said: hidden, deleted: 1, left: []string{"0", "1", "3"},
			retained: alone,
		},
		"not forced on the owner": {
			setup:   partitionedAudit + policy("XtkAudit") + "; ALTER TABLE XtkAudit NO FORCE ROW LEVEL SECURITY",
			deleted: 2, left: []string{"0", "3"},
		},
	}, "table", "partition", "child")
	const partitioned = `CREATE TABLE old AS SELECT * FROM NmsBroadLogRcp; DROP TABLE NmsBroadLogRcp;
		CREATE TABLE NmsBroadLogRcp (LIKE old) PARTITION BY LIST (iDeliveryId);
		ALTER TABLE NmsBroadLogRcp ALTER iBroadLogId SET NOT NULL;
		CREATE TABLE log1 PARTITION OF NmsBroadLogRcp DEFAULT; CREATE UNIQUE INDEX ON log1 (iBroadLogId);
		INSERT INTO NmsBroadLogRcp SELECT * FROM old; DROP TABLE old;
		ALTER TABLE log1 ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY p ON log1 USING (false)`
	tryCatalogs(t, "deliveries", deliveriesAndLogs, map[string]catalogCase{
		"a partition of a log": {
			setup:    someDeliveries + partitioned,
			said:     "2 rows of nmsdelivery are retained because row security may hide dependent rows",
			left:     allLeft,
			retained: purge.Retained{Dependent: 2, Tables: 2}, // the log, and the coupons that it has the deliveries of
		},
	})
}

// Rules and triggers retain rows unless they are disabled, or fire only for replication. Rows of a partition are also
// retained if a rule or a statement trigger of its table would not run for a statement on the partition.
func TestRulesAndTriggersAbove(t *testing.T) {
	t.Parallel()
	const (
		rows = "INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (0, '2000-01-01'), (1, '2000-01-01'), " +
			"(2, '2000-01-01'), (3, '2026-02-28'); "
		nothing = "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
		keep    = "CREATE RULE keep AS ON DELETE TO XtkAudit DO INSTEAD NOTHING; "
		also    = "CREATE TABLE gone (id integer); CREATE RULE also AS ON DELETE TO XtkAudit DO ALSO INSERT INTO gone " +
			"VALUES (OLD.iAuditId); "
		eachRow  = nothing + "CREATE TRIGGER keep BEFORE DELETE ON XtkAudit FOR EACH ROW EXECUTE FUNCTION nothing(); "
		bypassed = "would bypass a rule or a trigger FOR EACH STATEMENT of xtkaudit"
	)
	statement := func(event string) string {
		return nothing + "CREATE TRIGGER seen AFTER " + event +
			" ON XtkAudit FOR EACH STATEMENT EXECUTE FUNCTION nothing(); "
	}
	all, rest := []string{"0", "1", "2", "3"}, []string{"0", "3"}
	cases := map[string]catalogCase{}
	for name, setup := range map[string]string{
		"disabled rule":      rows + keep + "ALTER TABLE XtkAudit DISABLE RULE keep",
		"replica rule":       rows + keep + "ALTER TABLE XtkAudit ENABLE REPLICA RULE keep",
		"disabled trigger":   rows + eachRow + "ALTER TABLE XtkAudit DISABLE TRIGGER keep",
		"replica trigger":    rows + eachRow + "ALTER TABLE XtkAudit ENABLE REPLICA TRIGGER keep",
		"statement trigger":  rows + statement("DELETE"),
		"insertions above":   partitionedAudit + statement("INSERT OR UPDATE"),
		"disabled above":     partitionedAudit + statement("DELETE") + "ALTER TABLE XtkAudit DISABLE TRIGGER seen",
		"rule of all levels": partitionedAudit + keep + "ALTER TABLE XtkAudit DISABLE RULE keep",
	} {
		cases[name] = catalogCase{setup: setup, deleted: 2, left: rest}
	}
	for name, setup := range map[string]string{
		"always rule":             rows + keep + "ALTER TABLE XtkAudit ENABLE ALWAYS RULE keep",
		"always trigger":          rows + eachRow + "ALTER TABLE XtkAudit ENABLE ALWAYS TRIGGER keep",
		"row trigger above":       partitionedAudit + eachRow,
		"rule above":              partitionedAudit + keep,
		"also above":              partitionedAudit + also,
		"statement trigger above": partitionedAudit + statement("DELETE"),
		"rule of a parent":        inheritedAudit + keep,
	} {
		c := catalogCase{setup: setup, left: all, retained: purge.Retained{Suppressed: 2}}
		if strings.Contains(name, "rule above") || strings.Contains(name, "also") ||
			strings.Contains(name, "statement") {
			c.said = bypassed
		}
		cases[name] = c
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "disabled rule", "always trigger", "statement trigger", "rule above",
				"statement trigger above")
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(c.setup)
			remarked, isEstimate := false, false
			for _, p := range mustRun(t, db, dry, "audit-trail").previews["audit-trail"] {
				for _, remark := range p.Remarks {
					remarked = remarked || strings.Contains(remark, "a trigger or rule of the table may ")
					isEstimate = isEstimate || strings.HasPrefix(remark, "an estimate")
				}
			}
			retains := c.deleted == 0
			if fires := retains || strings.HasPrefix(name, "statement"); remarked != fires || isEstimate != retains {
				t.Errorf("a dry run remarks on it: %t, as an estimate: %t", remarked, isEstimate)
			}
			j := mustRun(t, db, nil, "audit-trail")
			if got := db.Strings(auditLeft); !slices.Equal(got, c.left) || j.deleted["audit-trail"] != c.deleted ||
				j.retained["audit-trail"] != c.retained || (c.said != "" && !j.said("WARNING", c.said)) {
				t.Errorf("left %q: %+v: %q", got, j.retained["audit-trail"], j.logs)
			}
		})
	}
}

// A partitioned table without partitions has no rows, whether its partitions were dropped or it never had any.
func TestPartitionedTablesWithoutPartitions(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("CREATE TABLE visitors AS SELECT * FROM NmsVisitor; CREATE TABLE groups AS SELECT * FROM NmsGroup; " +
		"DROP TABLE NmsVisitor, NmsGroup; CREATE TABLE NmsVisitor (LIKE visitors) PARTITION BY LIST (iVisitorId); " +
		"CREATE TABLE NmsGroup (LIKE groups) PARTITION BY LIST (iGroupId)")
	for _, change := range []string{
		"SELECT",
		"CREATE TABLE part PARTITION OF NmsVisitor DEFAULT; DROP TABLE part; " +
			"CREATE TABLE lists PARTITION OF NmsGroup DEFAULT; DROP TABLE lists",
	} {
		db.Do(change)
		for _, change := range []func(*cleanup.Config){dry, nil} {
			j := mustRun(t, db, change, "visitors", "lists-to-delete")
			j.checkLog(t, "nmsvisitor is partitioned and has no partition")
		}
	}
}

// An identity column accepts the ids that the application would take, even if its values are always generated.
func TestIdentities(t *testing.T) {
	t.Parallel()
	for _, generated := range []string{"ALWAYS", "BY DEFAULT"} {
		t.Run(generated, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			for table, id := range map[string]string{"XtkOption": "iOptionId", "XtkJobLog": "iJobLogId"} {
				db.Do("ALTER TABLE " + table + " ALTER " + id + " DROP DEFAULT, ALTER " + id + " ADD GENERATED " +
					generated + " AS IDENTITY")
			}
			db.Do(
				"ALTER TABLE NmsBroadLogRcp ALTER iBroadLogId DROP DEFAULT, ALTER iBroadLogId ADD GENERATED " +
					generated +
					" AS IDENTITY; " + strings.Replace(someDeliveries, "tsLastModified)\n\t\t\tVALUES (0",
					"tsLastModified) OVERRIDING SYSTEM VALUE\n\t\t\tVALUES (0", 1) + deliveryWithPages +
					"INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES (7, 2, '2026-01-01')",
			)
			mustRun(t, db, nil, "npai", "deliveries", "mirror-pages")
			got := db.Strings(
				"SELECT iOptionId || ' ' || sName FROM XtkOption UNION ALL SELECT 'job log ' || iJobLogId " +
					"FROM XtkJobLog UNION ALL SELECT 'log ' || iBroadLogId FROM NmsBroadLogRcp ORDER BY 1",
			)
			want := []string{"1000 NmsCleanup_LastCleanup", "job log 1", "log 0", "log 3"}
			if !slices.Equal(got, want) || db.Int("SELECT count(*) FROM NmsAddress") != 0 {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Errors are also summed up in tables with generated columns, domains and identities. A sum is limited to the range of
// the type that a domain is based on. The task fails, and changes nothing, if rows are grouped by a generated column.
func TestSumsOfUnusualColumns(t *testing.T) {
	t.Parallel()
	const rows = "INSERT INTO NmsEmailErrorStat (iMXIP, tsDate, iTotalErrors, iMessageErrors) VALUES " +
		"(1, '2026-01-01', 30, 2147483647), (1, '2026-01-02', 30, 2147483647)"
	for name, c := range map[string]struct{ change, want, problem string }{
		"generated": {
			"DROP iTotalConnections, ADD iTotalConnections integer GENERATED ALWAYS AS (iTotalErrors * 2) STORED",
			"60 120 2147483647", "",
		},
		"dropped and added": {"DROP iTotalErrors, ADD iTotalErrors bigint NOT NULL DEFAULT 0", "60 0 2147483647", ""},
		"a domain":          {"ALTER iMessageErrors TYPE number", "60 0 2147483647", ""},
		"numeric":           {"ALTER iMessageErrors TYPE numeric", "60 0 4294967294", ""},
		"an identity":       {"ADD iId integer GENERATED ALWAYS AS IDENTITY", "60 0 2147483647", ""},
		"a generated key": {
			"DROP iPublicId, ADD iPublicId integer GENERATED ALWAYS AS (iMXIP) STORED",
			"30 0 2147483647,30 0 2147483647", "ipublicid",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "generated", "numeric", "a generated key")
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do("CREATE DOMAIN number AS integer; ALTER TABLE NmsEmailErrorStat " + c.change + "; " + rows)
			j, err := run(t, db, nil, "email-error-stats")
			got := strings.Join(
				db.Strings("SELECT concat_ws(' ', iTotalErrors, iTotalConnections, iMessageErrors) FROM "+
					"NmsEmailErrorStat"),
				",",
			)
			if got != c.want || (err == nil) != (c.problem == "") ||
				!strings.Contains(j.problems["email-error-stats"], c.problem) {
				t.Errorf("got %q: %v", got, err)
			}
		})
	}
}

// Foreign keys lead to the id of a list or to another column, are validated or not, and are checked at once or
// deferred.
func TestForeignKeysOfAllKinds(t *testing.T) {
	t.Parallel()
	const (
		lists   = "INSERT INTO NmsGroup (iGroupId, iDeleteStatus) VALUES (1, 1), (2, 1); "
		related = "CREATE TABLE CusRelated (iGroupId integer); INSERT INTO CusRelated VALUES (1), (77); "
		left    = "SELECT 'list ' || iGroupId FROM NmsGroup UNION ALL SELECT 'related ' || iGroupId FROM CusRelated " +
			"ORDER BY 1"
	)
	tryCatalogs(t, "lists-to-delete", left, map[string]catalogCase{
		"to another column": {
			setup: "ALTER TABLE NmsGroup ADD iOther integer UNIQUE; INSERT INTO NmsGroup (iGroupId, iDeleteStatus, iOther) " +
				"VALUES (1, 1, 100), (2, 0, 1); " + related +
				"ALTER TABLE CusRelated ADD FOREIGN KEY (iGroupId) REFERENCES " +
				"NmsGroup (iOther) NOT VALID",
			deleted: 1,
			left:    []string{"list 2", "related 1", "related 77"},
		},
		"not valid": {
			setup: lists + related +
				"ALTER TABLE CusRelated ADD FOREIGN KEY (iGroupId) REFERENCES NmsGroup (iGroupId) " +
				"NOT VALID",
			deleted: 3,
			left:    []string{"related 77"},
		},
		"from another column, deferred": {
			setup: lists + related + "DELETE FROM CusRelated WHERE iGroupId = 77; ALTER TABLE CusRelated ADD iOwned " +
				"integer DEFAULT 1 REFERENCES NmsGroup (iGroupId) DEFERRABLE INITIALLY DEFERRED",
			deleted: 1, left: []string{"list 1", "related 1"}, retained: purge.Retained{Suppressed: 1},
			said: "list 1 is retained",
		},
	}, "not valid", "from another column, deferred")
	alone := purge.Retained{Failed: 1, Kept: 1, Dependent: 1}
	cases := map[string]catalogCase{}
	for name, kind := range map[string]string{
		"not deferrable": "", "deferred": "DEFERRABLE INITIALLY DEFERRED", "not valid": "NOT VALID",
	} {
		cases[name] = catalogCase{
			setup: someDeliveries + "CREATE TABLE CusNote (iId integer); INSERT INTO CusNote VALUES (1); ALTER TABLE " +
				"CusNote ADD FOREIGN KEY (iId) REFERENCES NmsDelivery (iDeliveryId) " + kind,
			said: "row 1 failed and is retained", deleted: 2, retained: alone, problem: "delete them first",
			left: []string{"delivery 0", "delivery 1", "delivery 3", "log 0", "log 3"},
		}
	}
	tryCatalogs(t, "deliveries", deliveriesAndLogs, cases, "deferred")
	tryCatalogs(t, "email-error-stats", "SELECT iTotalErrors::text FROM NmsEmailErrorStat", map[string]catalogCase{
		"deferred": {
			setup: "CREATE UNIQUE INDEX ON NmsEmailErrorStat (iMXIP, iPublicId, tsDate); INSERT INTO NmsEmailErrorStat " +
				"(iMXIP, iPublicId, tsDate, iTotalErrors) VALUES (1, 1, '2026-01-01', 30), (1, 1, '2026-01-02', 30); " +
				"CREATE TABLE CusNote (a integer, b integer, c timestamptz, FOREIGN KEY (a, b, c) REFERENCES " +
				"NmsEmailErrorStat (iMXIP, iPublicId, tsDate) DEFERRABLE INITIALLY DEFERRED); INSERT INTO CusNote VALUES " +
				"(1, 1, '2026-01-02')",
			deleted:  1,
			retained: purge.Retained{Failed: 1},
			left:     []string{"30", "30"},
			problem:  "1 of 2 rows failed",
		},
	})
}

// PostgreSQL rejects deletions if the filter or the columns of a publication do not fit the replica identity: nothing
// is deleted, and the error has advice.
func TestPublicationsThatRefuse(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	if db.Int("SELECT current_setting('server_version_num')::int") < 150000 {
		t.Skip("publications have no filters before PostgreSQL 15")
	}
	const rows = "INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (0, '2000-01-01'), (1, '2000-01-01'); DROP INDEX " +
		"XtkAudit_id; ALTER TABLE XtkAudit ADD PRIMARY KEY (iAuditId); "
	cases := map[string]catalogCase{}
	for name, publication := range map[string]string{
		"row filter":  "CREATE PUBLICATION p FOR TABLE XtkAudit WHERE (tsChanged > '2010-01-01')",
		"column list": "CREATE PUBLICATION p FOR TABLE XtkAudit (tsChanged)",
	} {
		cases[name] = catalogCase{
			setup: rows + publication, left: []string{"0", "1"}, problem: "ALTER TABLE … REPLICA IDENTITY FULL",
		}
	}
	tryCatalogs(t, "audit-trail", auditLeft, cases)
}

// A missing right to a partition or child is found before anything is deleted.
func TestRightsToPartitions(t *testing.T) {
	t.Parallel()
	all := []string{"0", "1", "2", "3"}
	tryCatalogs(t, "audit-trail", auditLeft, map[string]catalogCase{
		"partition": {
			setup: partitionedAudit, super: "ALTER TABLE audit1 OWNER TO postgres", left: all,
			problem: `GRANT SELECT, DELETE ON "public"."audit1" TO "neolane"`,
		},
		"child": {
			setup: inheritedAudit, super: "ALTER TABLE audit1 OWNER TO postgres; GRANT SELECT ON audit1 TO neolane",
			left: all, problem: `GRANT DELETE ON "public"."audit1" TO "neolane"`,
		},
		"granted": {
			setup: partitionedAudit, left: []string{"0", "3"}, deleted: 2,
			super: "ALTER TABLE audit1 OWNER TO postgres; GRANT SELECT, DELETE ON audit1 TO neolane",
		},
	})
}

// A column is a key if a usable unique index has only that column. The index may include other columns, treat NULL in
// either way and be deferrable. An index that is being built, or that failed, does not count, nor do other constraints.
func TestIndexesOfKeys(t *testing.T) {
	t.Parallel()
	const drop = "DROP INDEX NmsBroadLogRcp_id; "
	broken := func(columns string) catalogCase {
		return catalogCase{
			setup:    someDeliveries,
			super:    "UPDATE pg_index SET " + columns + " WHERE indexrelid = 'nmsbroadlogrcp_id'::regclass",
			said:     "it is not a log, which needs the unique key",
			deleted:  1,
			retained: purge.Retained{Dependent: 1, Tables: 1},
			left:     withLog,
		}
	}
	skipped := func(setup string) catalogCase {
		c := broken("")
		c.setup, c.super = someDeliveries+setup, ""
		return c
	}
	key := func(setup string) catalogCase {
		return catalogCase{setup: someDeliveries + setup, deleted: 3, left: withoutBoth}
	}
	cases := map[string]catalogCase{
		"not valid":     broken("indisvalid = false"),
		"not ready":     broken("indisready = false"),
		"being dropped": broken("indislive = false, indisvalid = false, indisready = false"),
		"partial":       skipped(drop + "CREATE UNIQUE INDEX ON NmsBroadLogRcp (iBroadLogId) WHERE iBroadLogId > 0"),
		"an expression": skipped(drop + "CREATE UNIQUE INDEX ON NmsBroadLogRcp ((iBroadLogId + 0))"),
		"exclusion":     skipped(drop + "ALTER TABLE NmsBroadLogRcp ADD EXCLUDE USING btree (iBroadLogId WITH =)"),
		"deferred":      key(drop + "ALTER TABLE NmsBroadLogRcp ADD UNIQUE (iBroadLogId) DEFERRABLE INITIALLY DEFERRED"),
		"replicated": key("ALTER TABLE NmsBroadLogRcp REPLICA IDENTITY USING INDEX nmsbroadlogrcp_id; " +
			"CLUSTER NmsBroadLogRcp USING nmsbroadlogrcp_id"),
		"includes": key(drop + "CREATE UNIQUE INDEX ON NmsBroadLogRcp (iBroadLogId) INCLUDE (iStatus)"),
	}
	if server := pgtest.Campaign(t); server.Int("SELECT current_setting('server_version_num')::int") >= 150000 {
		cases["nulls"] = key(drop + "CREATE UNIQUE INDEX ON NmsBroadLogRcp (iBroadLogId) NULLS NOT DISTINCT")
	}
	tryCatalogs(t, "deliveries", deliveriesAndLogs, cases, "not valid", "partial", "deferred", "includes")
}

// An index that a failed CREATE INDEX CONCURRENTLY left behind does not count as a key.
func TestIndexThatCouldNotBeBuilt(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(someDeliveries + "DROP INDEX NmsBroadLogRcp_id; INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) " +
		"VALUES (1, 3)")
	if _, err := db.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY ON NmsBroadLogRcp (iBroadLogId)"); err == nil {
		t.Fatal("the index was built")
	}
	j := mustRun(t, db, nil, "deliveries")
	if got := db.Strings(deliveriesLeft); !slices.Equal(got, []string{"0", "1", "3"}) ||
		db.Int("SELECT count(*) FROM NmsBroadLogRcp") != 4 {
		t.Errorf("deliveries %q are left: %q", got, j.logs)
	}
}

// The rows of a partition that is being detached are kept, even if its detaching was interrupted.
func TestPartitionThatIsBeingDetached(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`CREATE TABLE old AS SELECT * FROM XtkAudit; DROP TABLE XtkAudit;
		CREATE TABLE XtkAudit (LIKE old) PARTITION BY LIST (iAuditId);
		CREATE TABLE audit1 PARTITION OF XtkAudit FOR VALUES IN (1); CREATE TABLE audit2 PARTITION OF XtkAudit FOR
			VALUES IN (2);
		INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01'), (2, '2000-01-01')`)
	reader := db.Hold("SELECT FROM XtkAudit")
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SET statement_timeout = 100"); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), "ALTER TABLE XtkAudit DETACH PARTITION audit1 CONCURRENTLY")
	if err == nil || db.Int("SELECT count(*) FROM pg_inherits WHERE inhdetachpending") != 1 {
		t.Fatalf("the partition is not being detached: %v", err)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	j := mustRun(t, db, nil, "audit-trail")
	if j.deleted["audit-trail"] != 1 || db.Int("SELECT count(*) FROM audit1") != 1 {
		t.Errorf("%d rows deleted, %d left: %q", j.deleted["audit-trail"], db.Int("SELECT count(*) FROM audit1"),
			j.logs)
	}
}

// Tables are cleaned regardless of how they are stored, and of how their columns were made.
func TestTablesOfAllKinds(t *testing.T) {
	t.Parallel()
	cases := map[string]catalogCase{}
	for name, change := range map[string]string{
		"a typed table": "CREATE TYPE visitor AS (iVisitorId integer, iRecipientId integer, iOrigin smallint, " +
			"tsLastModified timestamptz); DROP TABLE NmsVisitor; CREATE TABLE NmsVisitor OF visitor (iVisitorId WITH OPTIONS " +
			"NOT NULL, iRecipientId WITH OPTIONS DEFAULT 0, iOrigin WITH OPTIONS DEFAULT 0)",
		"unlogged":   "ALTER TABLE NmsVisitor SET UNLOGGED",
		"a bigint":   "ALTER TABLE NmsVisitor ALTER iVisitorId TYPE bigint",
		"a smallint": "ALTER TABLE NmsVisitor ALTER iVisitorId TYPE smallint",
		"a date":     "ALTER TABLE NmsVisitor ALTER tsLastModified TYPE date",
		"dropped and added": "ALTER TABLE NmsVisitor DROP iVisitorId, DROP tsLastModified; ALTER TABLE NmsVisitor " +
			"ADD iVisitorId bigint, ADD tsLastModified timestamptz",
		"a generated date": "ALTER TABLE NmsVisitor RENAME tsLastModified TO tsMade; ALTER TABLE NmsVisitor ADD " +
			"tsLastModified timestamptz GENERATED ALWAYS AS (tsMade) STORED",
	} {
		visitors := someVisitors
		if strings.HasPrefix(name, "a generated") {
			visitors = strings.Replace(visitors, "tsLastModified", "tsMade", 1)
		}
		cases[name] = catalogCase{setup: change + "; " + visitors, deleted: 2, left: []string{"0", "3"}}
	}
	cases["a date that is a text"] = catalogCase{
		setup: "ALTER TABLE NmsVisitor ALTER tsLastModified TYPE text; " + someVisitors,
		left:  []string{"0", "1", "2", "3"}, problem: "operator does not exist: text < timestamp with time zone",
	}
	tryCatalogs(t, "visitors", visitorsLeft, cases, "a typed table", "dropped and added", "a generated date",
		"a date that is a text")
	tryCatalogs(t, "deliveries", deliveriesAndLogs, map[string]catalogCase{
		"a state that is generated": {
			setup: someDeliveries +
				"ALTER TABLE NmsDelivery DROP iState, ADD iState smallint GENERATED ALWAYS AS (55) STORED",
			left:    allLeft,
			problem: `column "istate" can only be updated to DEFAULT`,
		},
	})
}

// A temporary table of a session with the name of an application's table does not hide it.
func TestTemporaryTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(someVisitors)
	conns := db.AcquireAllIdle(t.Context())
	for _, conn := range conns {
		if _, err := conn.Exec(t.Context(), "CREATE TEMP TABLE NmsVisitor (LIKE public.NmsVisitor); CREATE TEMP TABLE "+
			"XtkOption (LIKE public.XtkOption); SET search_path = pg_temp, public"); err != nil {
			t.Error(err)
		}
		conn.Release()
	}
	if len(conns) == 0 {
		t.Fatal("there is no connection")
	}
	j := mustRun(t, db, nil, "visitors")
	got := db.Strings("SELECT iVisitorId::text FROM public.NmsVisitor ORDER BY 1")
	if !slices.Equal(got, []string{"0", "3"}) {
		t.Errorf("visitors %q are left: %q", got, j.logs)
	}
}

// Rows of a table with another access method than heap have no usable TIDs: they are found by their key.
func TestAccessMethods(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Superuser("CREATE ACCESS METHOD rows TYPE TABLE HANDLER heap_tableam_handler")
	db.Do(
		"ALTER TABLE NmsVisitor RENAME TO old; CREATE TABLE NmsVisitor (LIKE old INCLUDING ALL) USING rows; " +
			someVisitors,
	)
	for _, change := range []func(*cleanup.Config){dry, nil} {
		if j := mustRun(t, db, change, "visitors"); j.deleted["visitors"] != 2 {
			t.Errorf("%d rows deleted: %q", j.deleted["visitors"], j.logs)
		}
	}
	if got := db.Strings(visitorsLeft); !slices.Equal(got, []string{"0", "3"}) {
		t.Errorf("visitors %q are left", got)
	}
}
