package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func inZone(db *pgtest.DB, zone string) {
	db.Superuser(fmt.Sprintf("ALTER DATABASE %s SET timezone = '%s'", db.Name, zone))
	db.Reset()
}

// localAudits makes the dates of the audit trail local, and inserts an entry for each hour around the cutoff.
func localAudits(db *pgtest.DB) {
	db.Do("ALTER TABLE XtkAudit ALTER tsChanged TYPE timestamp")
	insertAudits(db)
}

// insertAudits inserts entries whose ids are 100 plus the hours from the cutoff in UTC.
func insertAudits(db *pgtest.DB) {
	db.Do(
		"INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT h + 100, $1::timestamptz AT TIME ZONE 'UTC' + h * "+
			"interval '1 hour' FROM generate_series(-30, 30) h",
		now.Add(-180*24*time.Hour),
	)
}

// If the zone of the application is unknown, only rows that are obsolete in every zone are deleted.
func TestZoneOption(t *testing.T) {
	t.Parallel()
	stored := func(rows string) string {
		return "INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue) VALUES " + rows
	}
	named := func(zone string) string { return stored("(1, 'WdbcTimeZone', 6, '" + zone + "')") }
	db := pgtest.Campaign(t)
	inZone(db, "Asia/Tokyo") // UTC+9
	db.Do("DROP INDEX XtkOption_name; ALTER TABLE XtkAudit ALTER tsChanged TYPE timestamp")
	for _, c := range []struct {
		name, sql string
		lastHour  int64 // the last hour whose entry is deleted
		says      string
	}{
		{
			"named", named("America/Bogota"), -6,
			"INFO dates without a time zone are read in the zone America/Bogota, which option WdbcTimeZone names",
		},
		{ // with daylight saving time
			"named with blanks", named(" Europe/Paris "), 1,
			"INFO dates without a time zone are read in the zone Europe/Paris",
		},
		{
			"named by offset", named("Etc/GMT+5"), -6, "INFO dates without a time zone are read in the zone Etc/GMT+5",
		},
		{"none", "SELECT", 8, "INFO dates without a time zone are read in the database's zone, Asia/Tokyo"},
		{
			"unknown", named("Nowhere/City"), -13,
			`WARNING could not determine the zone of dates without a time zone: option WdbcTimeZone is "Nowhere/City", ` +
				`which is not an IANA time zone`,
		},
		{ // PostgreSQL accepts it
			"unknown, with a digit", named("Nowhere/City5"), -13,
			`option WdbcTimeZone is "Nowhere/City5", which is not an IANA time zone`,
		},
		{"empty", named(""), -13, `option WdbcTimeZone is "", which`},
		{"NULL", stored("(1, 'WdbcTimeZone', 6, NULL)"), -13, `option WdbcTimeZone is "", which`},
		{"injected", named("UTC''; DROP TABLE XtkAudit; --"), -13, "which is not an IANA time zone"},
		{
			"two", stored("(1, 'WdbcTimeZone', 6, 'Europe/Paris'), (2, 'WdbcTimeZone', 6, 'Europe/London')"), -13,
			`has several values: "Europe/London, Europe/Paris"`,
		},
		{
			"twice", stored("(1, 'WdbcTimeZone', 6, 'Europe/Paris'), (2, 'WdbcTimeZone', 6, 'Europe/Paris')"), 1,
			"zone Europe/Paris",
		},
		{"another option's", stored("(1, 'WdbcTimeZones', 6, 'Europe/Paris')"), 8, "database's zone"},
		{
			"no text", "ALTER TABLE XtkOption DROP sStringValue", 8,
			"INFO dates without a time zone are read in the database's zone, Asia/Tokyo",
		},
		{
			"no table", "DROP TABLE XtkOption", 8,
			"INFO dates without a time zone are read in the database's zone, Asia/Tokyo",
		},
	} {
		db.Do("DELETE FROM XtkAudit; DELETE FROM XtkOption")
		insertAudits(db)
		db.Do(c.sql)
		counted := mustRun(t, db, dry, "audit-trail").deleted["audit-trail"]
		j := mustRun(t, db, nil, "audit-trail")
		j.checkDeleted(t, "audit-trail", counted)
		if got := db.Int("SELECT min(iAuditId) FROM XtkAudit"); got != c.lastHour+101 {
			t.Errorf("%s: the first entry that is left has the id %d, want %d", c.name, got, c.lastHour+101)
		}
		zones := 0
		for _, line := range j.logs {
			if strings.Contains(line, "without a time zone") {
				zones++
				if !strings.Contains(line, c.says) {
					t.Errorf("%s: the log line is %q, want %q in it", c.name, line, c.says)
				}
			}
		}
		if zones != 1 {
			t.Errorf("%s: the log has %d lines about zones, want 1: %q", c.name, zones, j.logs)
		}
	}
}

// Dates of type date, and of domains, begin at midnight in the zone of the application. No other column needs a zone.
func TestZoneOfDateColumns(t *testing.T) {
	t.Parallel()
	const database = "Pacific/Kiritimati" // UTC+14
	audits := func(kind string) string {
		return `CREATE DOMAIN day AS date; CREATE DOMAIN day_of_days AS day; CREATE DOMAIN local AS timestamp;
			ALTER TABLE XtkAudit ALTER tsChanged TYPE ` + kind + `;
			INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT d, '2025-09-01'::date + d - 1 FROM generate_series(1, 4) d; `
	}
	const partitioned = `CREATE TABLE old AS SELECT * FROM XtkAudit WHERE iAuditId <> 0; DROP TABLE XtkAudit;
		CREATE TABLE XtkAudit (LIKE old) PARTITION BY RANGE (tsChanged); ALTER TABLE XtkAudit ALTER iAuditId SET NOT NULL;
		CREATE TABLE audit1 PARTITION OF XtkAudit FOR VALUES FROM (MINVALUE) TO ('2025-09-03');
		CREATE TABLE audit2 PARTITION OF XtkAudit FOR VALUES FROM ('2025-09-03') TO ('2025-09-04');
		CREATE TABLE audit3 PARTITION OF XtkAudit DEFAULT; CREATE UNIQUE INDEX ON audit1 (iAuditId);
		CREATE UNIQUE INDEX ON audit2 (iAuditId); CREATE UNIQUE INDEX ON audit3 (iAuditId);
		INSERT INTO XtkAudit SELECT * FROM old; `
	for name, setup := range map[string]string{
		"a date":                    audits("date"),
		"a domain of a domain":      audits("day_of_days"),
		"a domain over a timestamp": audits("local"),
		"the date of partitions":    audits("date") + partitioned,
	} {
		for zone, first := range map[string]int64{"America/Bogota": 3, "Nowhere/City": 2, "": 4} { // the first one left
			t.Run(name+" "+zone, func(t *testing.T) {
				if zone != "America/Bogota" && name != "the date of partitions" {
					suite.Only(t, suite.Long)
				}
				t.Parallel()
				db := pgtest.Campaign(t)
				inZone(db, database)
				db.Do(setup)
				if zone != "" {
					db.Do(
						"INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue) VALUES (1, 'WdbcTimeZone', 6, $1)",
						zone)
				}
				counted := mustRun(t, db, dry, "audit-trail").deleted["audit-trail"]
				j := mustRun(t, db, nil, "audit-trail")
				j.checkDeleted(t, "audit-trail", counted)
				checkCount(t, db, first, "SELECT min(iAuditId) FROM XtkAudit WHERE iAuditId <> 0")
				j.checkLog(t, "without a time zone", zone)
			})
		}
	}
}

// Policies read dates in the zone of the application. While that is unknown, a policy whose values depend on it does
// nothing.
func TestZoneOfPolicies(t *testing.T) {
	t.Parallel()
	old := policy.Policy{OlderThan: &policy.OlderThan{Column: "seen", Days: new(180)}}
	filtered, assigned, emptied, known := old, old, old, old
	filtered.Filters = []policy.Filter{{Column: "created", Op: "LESS", Values: []string{"2025-09-03"}}}
	value := "2025-09-03"
	assigned.Assign = []policy.Assign{{Column: "created", Value: &value}}
	emptied.Assign = []policy.Assign{{Column: "created"}}
	known.Filters = []policy.Filter{
		{Column: "seen", Op: "LESS", Values: []string{"2025-09-30"}}, {Column: "created", Op: "IS_NOT_NULL"},
	}
	policies := map[string]policy.Policy{
		"age": old, "filtered": filtered, "assigned": assigned, "emptied": emptied, "known": known,
	}
	for zone, first := range map[string]map[string]int64{ // the first row that is left as it was, by policy
		"America/Bogota": {"age": 3, "filtered": 3, "assigned": 3, "emptied": 3, "known": 3},
		"Nowhere/City":   {"age": 2, "filtered": 1, "assigned": 1, "emptied": 2, "known": 2},
		"":               {"age": 4, "filtered": 4, "assigned": 4, "emptied": 4, "known": 4},
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			inZone(db, "Pacific/Kiritimati")
			if zone != "" {
				db.Do("INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue) VALUES (1, 'WdbcTimeZone', 6, $1)",
					zone)
			}
			var todo []rules.Task
			for name, p := range policies {
				p.Name, p.Table, p.Enabled = name, inSchema(db, name,
					`CREATE TABLE shop (id integer, seen date, created timestamptz DEFAULT '2025-01-01');
					INSERT INTO shop SELECT d, '2025-09-01'::date + d - 1 FROM generate_series(1, 4) d`)+".shop", true
				todo = append(todo, p.Task())
			}
			j := mustRun(t, db, func(config *cleanup.Config) {
				config.Todo, config.Pipeline = todo, slices.Concat(tasks.Pipeline, todo)
			})
			for name, first := range first {
				checkCount(t, db, first, "SELECT min(id) FROM "+name+".shop WHERE created < '2025-02-01'")
				log := j.log("policy/" + name)
				if skipped := strings.Contains(log, "WdbcTimeZone") && strings.Contains(log, "created"); skipped != (first == 1) {
					t.Errorf("the log says that %s cannot run: %t: %q", name, skipped, log)
				}
			}
		})
	}
}

// While the zone of the application is unknown, dates are written in the zone of the database.
func TestZoneOfWrittenDates(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]string{
		"America/Bogota": "2026-03-01 07:00:00", "Nowhere/City": "2026-03-01 21:00:00", "": "2026-03-01 21:00:00",
	} {
		for _, kind := range []string{"timestamp", "timestamptz"} {
			t.Run(zone+" "+kind, func(t *testing.T) {
				suite.Except(t, suite.Long, "Bogota timestamptz", "City timestamp")
				t.Parallel()
				db := pgtest.Campaign(t)
				inZone(db, "Asia/Tokyo")
				db.Do(
					mappings + `ALTER TABLE NmsDelivery ALTER tsLastModified TYPE timestamp, ALTER tsBroadEnd TYPE timestamp,
						ALTER tsWebValidity TYPE timestamp, ALTER tsValidity TYPE ` + kind + `;
					ALTER TABLE NmsBroadLogRcp ALTER tsLastModified TYPE timestamp;
					ALTER TABLE XtkJobLog ALTER tsLog TYPE timestamp; ALTER TABLE XtkOption ALTER tsTimeStampValue TYPE timestamp;
					INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iState, tsValidity, tsLastModified, iToDeliver)
						VALUES (1, 1, 55, '2026-02-01 00:00', NULL, 0), (2, 1, 85, NULL, '2026-02-28 00:00', 10000);
					INSERT INTO NmsDelivery (iDeliveryId, iWebResPurged, tsWebValidity, iNeedMirrorPage)
						VALUES (3, 0, '2026-01-01 00:00', 1);
					INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iStatus) VALUES (1, 1, 6)`,
				)
				if zone != "" {
					db.Do(
						"INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue) VALUES (1, 'WdbcTimeZone', 6, $1)",
						zone)
				}
				mustRun(t, db, nil, "expired-deliveries", "mirror-pages", "npai")
				const valid = "2026-02-01 00:00:00"
				ended := valid
				if kind == "timestamptz" && zone == "America/Bogota" {
					ended = "2026-01-31 10:00:00"
				}
				checkRows(
					t,
					db,
					`SELECT concat_ws(' ', 'delivery', iDeliveryId, tsLastModified, 'ended', tsBroadEnd) FROM NmsDelivery
							WHERE iDeliveryId IN (1, 2)
						UNION ALL SELECT 'log ' || tsLastModified FROM NmsBroadLogRcp WHERE iBroadLogId = 1
						UNION ALL SELECT 'job log ' || tsLog FROM XtkJobLog WHERE iJobId = 3
						UNION ALL SELECT 'option ' || tsTimeStampValue FROM XtkOption WHERE sName = 'NmsCleanup_LastCleanup'`,
					"delivery 1 "+want+" ended "+ended,
					"delivery 2 "+want+" ended "+want,
					"log "+want,
					"job log "+want,
					"option "+want,
				)
			})
		}
	}
}

// If row security may hide the option, the zone is unknown. If all dates have a zone, the log does not mention it.
func TestZoneOptionHidden(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue) VALUES (1, 'WdbcTimeZone', 6, " +
			"'Nowhere/City')",
	)
	if j := mustRun(t, db, nil, "audit-trail"); strings.Contains(strings.Join(j.logs, "\n"), "zone") {
		t.Errorf("the log mentions a zone, although all dates have one: %q", j.logs)
	}
	localAudits(db)
	db.Do("ALTER TABLE XtkOption ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
	j, _ := run(t, db, nil, "audit-trail")
	j.checkLog(t, "option WdbcTimeZone cannot be read: row security may hide it")
	checkCount(t, db, 61, "SELECT count(*) FROM XtkAudit")
}

// Explanations and metrics read dates in the same zone as runs.
func TestZoneOfExplanations(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	localAudits(db)
	db.Do(
		"INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue) VALUES (1, 'WdbcTimeZone', 6, " +
			"'America/Bogota')",
	)
	c := cleanup.Config{Pool: db.Pool, Now: now, Pipeline: tasks.Pipeline}
	e, err := insight.NewExplainer(t.Context(), c, rules.Holds{}, "XtkAudit")
	if err != nil {
		t.Fatal(err)
	}
	for hour, want := range map[int]bool{-6: true, -5: false, 0: false} {
		x, err := e.Row(t.Context(), columnsOf(fmt.Sprint(hour+100)), anyKey)
		if err != nil {
			t.Fatal(err)
		}
		if (x.Verdict == insight.Deleted) != want {
			t.Errorf("hour %d: the verdict is %s (%s), want deleted: %t", hour, x.Verdict, x.Why, want)
		}
	}
	var zone string
	if err := db.Pool.QueryRow(t.Context(), "SHOW TimeZone").Scan(&zone); err != nil || zone != "UTC" {
		t.Errorf("other statements use the zone %s, want UTC: %v", zone, err)
	}

	db.Do("DELETE FROM XtkAudit WHERE iAuditId <> 0")
	db.Do(
		"INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, (now() - interval '182 days') AT TIME ZONE " +
			"'America/Bogota')",
	)
	db.Do("CREATE INDEX ON XtkAudit (tsChanged)")
	catalog, err := campaign.LoadCatalog(t.Context(), db.Pool, campaign.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	ages, err := insight.Overdue(t.Context(), db.Pool, catalog, tasks.Pipeline, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ages["public.xtkaudit"], 48*time.Hour; (got - want).Abs() > 10*time.Minute {
		t.Errorf("XtkAudit is overdue by %s, want %s", got, want)
	}
}

// A preview shows a date without a time as that date, wherever the day begins.
func TestDatesInPreviews(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Paris", "America/Bogota"} {
		db := pgtest.Empty(t)
		inZone(db, zone)
		db.Do(`CREATE TABLE visit (id int PRIMARY KEY, place int, on_day date);
			INSERT INTO visit SELECT i, i % 3, date '2020-01-01' + i FROM generate_series(0, 59) i;
			CREATE INDEX ON visit (place, on_day); ANALYZE visit`)
		old := &policy.OlderThan{Column: "on_day", Days: new(365)}
		for _, p := range []policy.Policy{
			{Name: "scanned", Table: "visit", OlderThan: old},
			{Name: "grouped", Table: "visit", OlderThan: old, KeepNewest: &policy.KeepNewest{
				Per: []string{"place"}, OrderBy: "on_day", Count: 2,
			}},
		} {
			j, err := runPolicies(t, db, true, p)
			if err != nil {
				t.Fatal(err)
			}
			newest := time.Date(2020, 2, 29, 0, 0, 0, 0, time.UTC)
			if p.KeepNewest != nil {
				newest = newest.AddDate(0, 0, -6)
			}
			checkDates(t, j.previews[p.TaskName()][0], time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), newest)
		}
	}
}

// A database without Campaign has no option that names the zone, and none is missed.
func TestZoneWithoutCampaign(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE visit (at timestamp)")
	c, err := campaign.LoadCatalog(t.Context(), db.Pool, campaign.Scope{NoCampaign: true, Named: []string{"visit"}})
	if err != nil {
		t.Fatal(err)
	}
	if says := c.Zone.Reason.Text; !strings.Contains(says, "database's zone") || strings.Contains(says, "option") {
		t.Errorf("%s", says)
	}
}
