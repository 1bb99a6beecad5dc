package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// The option chooses between VACUUM, ANALYZE alone, and neither. A dry run does nothing, and tables of other roles are
// left out. Partitioned parents are analyzed after their partitions, and materialized views like tables. A parent of
// foreign tables is skipped, since ANALYZE would read them from their server.
func TestStatistics(t *testing.T) {
	t.Parallel()
	vacuumed := []string{
		"analyzed 100 a_log", "analyzed 100 b_log", "vacuumed 100 seen", "vacuumed 50 c_log", "vacuumed 50 d_log",
	}
	for _, c := range []struct {
		option string
		says   []string
		never  string
		want   []string
	}{
		{"", []string{"INFO:  vacuuming", "nmsvisitor"}, "", vacuumed},
		{"1", []string{"Option 'XtkCleanup_NoStats' is set to '1'"}, "INFO:  ", nil},
		{"2", []string{"INFO:  analyzing", "nmsvisitor"}, "vacuuming", []string{
			"analyzed 100 a_log", "analyzed 100 b_log", "analyzed 100 seen", "analyzed 50 c_log", "analyzed 50 d_log",
		}},
		{"0", []string{"INFO:  vacuuming", "nmsvisitor"}, "", vacuumed},
		{"9", []string{"WARNING", "stored as 9"}, "INFO:  ", nil},
	} {
		t.Run("option "+c.option, func(t *testing.T) {
			suite.Except(t, suite.Long, "option ", "option 1", "option 2", "option 9")
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(`CREATE TABLE a_log (id integer, day integer) PARTITION BY RANGE (id);
				CREATE TABLE b_log PARTITION OF a_log FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (day);
				CREATE TABLE c_log PARTITION OF b_log FOR VALUES FROM (0) TO (10);
					CREATE TABLE d_log PARTITION OF b_log FOR VALUES FROM (10) TO (20);
				CREATE TABLE e_log (id integer) PARTITION BY RANGE (id);
				INSERT INTO a_log SELECT i, i % 20 FROM generate_series(0, 99) i; CREATE MATERIALIZED VIEW seen AS
					SELECT * FROM a_log`)
			if c.option != "" {
				db.Do("INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', " + c.option + ")")
			}
			db.Superuser(
				`CREATE FOREIGN DATA WRAPPER elsewhere;
				CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere;
				GRANT USAGE ON FOREIGN SERVER elsewhere TO neolane; CREATE TABLE owned_by_postgres ()`,
			)
			db.Do("CREATE FOREIGN TABLE f_log PARTITION OF e_log FOR VALUES FROM (0) TO (100) SERVER elsewhere")
			mustRun(t, db, dry, "statistics").checkNoLog(t, "INFO:  ")
			j := mustRun(t, db, nil, "statistics")
			j.checkLog(t, c.says...)
			if c.never != "" {
				j.checkNoLog(t, c.never)
			}
			j.checkNoLog(t, "owned_by_postgres")
			got := db.Strings(`SELECT concat_ws(' ', reltuples, relname) FROM pg_class
				WHERE relname ~ '^(._log|seen)$' AND reltuples >= 0 AND EXISTS (SELECT FROM pg_stats
					WHERE tablename = relname AND inherited = (relkind = 'p'))`)
			for i, table := range got {
				_, name, _ := strings.Cut(table, " ")
				if got[i] = "analyzed " + table; slices.Contains(j.vacuumed(), "vacuuming "+name) {
					got[i] = "vacuumed " + table
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q; %q", got, c.want, j.logs)
			}
			last, lines := -1, strings.Split(strings.Join(j.logs, "\n"), "\n")
			for _, first := range []string{`c_log"`, `b_log" inheritance tree`, `a_log" inheritance tree`} {
				at := slices.IndexFunc(lines, func(line string) bool {
					return strings.Contains(line, "analyzing") && strings.Contains(line, first)
				})
				if c.want != nil && at <= last {
					t.Errorf("%s is analyzed too soon: %q", first, j.logs)
				}
				last = at
			}
		})
	}
}

// Tasks after statistics vacuum the tables from which they deleted rows, and analyze their parents, if statistics
// succeeded in the same run.
func TestTheTasksBehindStatistics(t *testing.T) {
	t.Parallel()
	names := tasks.Names()
	behind := names[slices.Index(names, "statistics")+1:]
	after := func(c *cleanup.Config) { c.Succeeded = map[string]bool{"statistics": true} }
	for _, c := range []struct {
		name, option string
		change       func(*cleanup.Config)
		want         []string
	}{
		{
			"vacuum",
			"0",
			after,
			[]string{
				"vacuuming xtksessioninfo", "analyzing xtksessioninfo", "vacuuming rtevent_old",
				"analyzing rtevent_old", "analyzing nmsrtevent",
			},
		},
		{"analyze", "2", after, []string{"analyzing xtksessioninfo", "analyzing rtevent_old", "analyzing nmsrtevent"}},
		{"nothing", "1", after, nil},
		{"without statistics", "0", nil, nil},
		{"dry", "0", func(c *cleanup.Config) { after(c); dry(c) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			suite.Except(t, suite.Long, "vacuum", "analyze", "without statistics")
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(
				`DROP TABLE NmsRtEvent;
					CREATE TABLE NmsRtEvent (iRtEventId bigint,
					tsLastModified timestamptz) PARTITION BY RANGE (tsLastModified);
				CREATE TABLE rtevent_old PARTITION OF NmsRtEvent FOR VALUES FROM ('2000-01-01') TO ('2026-02-15');
					CREATE TABLE rtevent_new PARTITION OF NmsRtEvent FOR VALUES FROM ('2026-02-15') TO ('2100-01-01');
				INSERT INTO NmsRtEvent VALUES (1, '2025-01-01'), (2, '2026-02-14'), (3, '2026-02-16');
				INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('x', '2000-01-01');
				INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', ` + c.option +
					")",
			)
			j := mustRun(t, db, c.change, behind...)
			if j.deleted["sessions"] != 1 || j.deleted["expired-events"] != 1 {
				t.Fatalf("deleted %v, want 1 session and 1 event", j.deleted)
			}
			// Before version 18, ANALYZE of a parent analyzes all its partitions again.
			got := slices.DeleteFunc(j.vacuumed(), func(line string) bool { return line == "analyzing rtevent_new" })
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// If the worker of a task after statistics dies, the next worker vacuums the tables from which either deleted rows.
func TestResumingATaskBehindStatistics(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	for _, after := range []bool{false, true} {
		for at, died := 1, true; died; at++ {
			db.Do(
				"INSERT INTO NmsRtEvent (iRtEventId, tsLastModified) VALUES (1, '2000-01-01'); INSERT INTO " +
					"NmsBatchEvent (iBatchEventId, tsLastModified) VALUES (1, '2000-01-01')",
			)
			j := newJournal(db)
			j.loseAt, j.after = at, after
			succeeded := func(c *cleanup.Config) { c.Succeeded = map[string]bool{"statistics": true} }
			err := runWith(t, j, succeeded, "expired-events")
			if died = errors.Is(err, cleanup.ErrLost); died {
				j.loseAt = 0
				err = runWith(t, j, func(c *cleanup.Config) { succeeded(c); c.Cursor = j.cursor }, "expired-events")
			}
			want := []string{
				"analyzing nmsbatchevent", "analyzing nmsrtevent", "vacuuming nmsbatchevent", "vacuuming nmsrtevent",
			}
			if err != nil {
				t.Errorf("batch %d: the run ended with %v", at, err)
			}
			j.checkDeleted(t, "expired-events", 2)
			if got := slices.Sorted(slices.Values(j.vacuumed())); !slices.Equal(got, want) {
				t.Errorf("batch %d: got %q, want %q", at, got, want)
			}
			if at > 20 {
				t.Fatal("the task needs more than 20 batches")
			}
		}
	}
}

// A table with a failing index expression is reported. All other tables are vacuumed, and the task reports how many
// failed.
func TestStatisticsOfTablesThatFail(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Superuser(
		"CREATE FUNCTION missing_file() RETURNS text SECURITY DEFINER LANGUAGE sql AS " +
			"$$ SELECT pg_read_file('/missing/file') $$",
	)
	var tables []string
	for i, body := range []string{
		"RAISE 'not today'",
		"PERFORM 1 FROM nowhere",
		"i := i / 0",
		"RAISE 'too much' USING ERRCODE = '53200'",
		"RAISE 'closed for the night' USING ERRCODE = '57P01'",
		"PERFORM public.missing_file()", // 58P01 of the server itself
	} {
		table := fmt.Sprint("failing", i)
		tables = append(tables, table)
		db.Do(fmt.Sprintf(`CREATE FUNCTION fails_%[1]s(i integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
				IF i > 0 THEN %[2]s; END IF; RETURN i; END $$;
			CREATE TABLE %[1]s (i integer); CREATE INDEX ON %[1]s (fails_%[1]s(i))`, table, body))
		// The index remains empty, so that only ANALYZE evaluates the expression.
		const ready = "UPDATE pg_index SET indisready = %t, indislive = true WHERE indrelid = '%s'::regclass"
		db.Superuser(fmt.Sprintf(ready, false, table))
		db.Do("INSERT INTO " + table + " VALUES (1)")
		db.Superuser(fmt.Sprintf(ready, true, table))
	}
	db.Do("CREATE TABLE z_table (i integer)")
	j := mustRun(t, db, nil, "statistics", "app-subscriptions")
	j.checkState(t, "statistics", cleanup.Succeeded)
	if got := j.vacuumed(); !slices.Contains(got, "analyzing z_table") {
		t.Errorf("z_table was not analyzed: %q", got)
	}
	if j.states["app-subscriptions"] == "" {
		t.Error("the next task was not run")
	}
	for _, table := range tables {
		j.checkLog(t, "WARNING", `"public"."`+table+`"`, "failed")
	}
	j.checkRetained(t, "statistics", purge.Retained{Tables: 6})
	if got, want := j.details["statistics"], "VACUUM or ANALYZE failed on 6 tables"; got != want {
		t.Errorf("the detail is %q, want %q", got, want)
	}
}

// If VACUUM and ANALYZE fail on the only table, with an error of the server, the task fails.
func TestStatisticsOfTheOnlyTableThatFails(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('x', '2000-01-01')")
	_, pool := db.Inject(func(sql string) string {
		if strings.HasPrefix(sql, "VACUUM") {
			return pgerrcode.IOError
		}
		return ""
	})
	j, err := run(t, db, func(c *cleanup.Config) {
		c.Pool, c.Succeeded = pool, map[string]bool{"statistics": true}
	}, "sessions")
	if err == nil || errors.Is(err, cleanup.ErrLost) {
		t.Errorf("the run ended with %v, want the error of the task", err)
	}
	j.checkState(t, "sessions", cleanup.Failed)
	j.checkProblem(t, "sessions", "SQLSTATE 58030")
}

// While the credentials are replaced, the task is interrupted, and not skipped as if no connection were free.
func TestStatisticsWithoutCredentials(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	config := db.Config()
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if c.OnNotice != nil { // the connection for VACUUM
			return connection.ErrCredentials
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := run(t, db, func(c *cleanup.Config) { c.Pool = pool }, "statistics"); !errors.Is(
		err, cleanup.ErrLost,
	) {
		t.Errorf("the run ended with %v, want a lost database", err)
	}
}

// A table that is locked is skipped, reported and counted, even if PostgreSQL says so only in a notice. All other
// tables are vacuumed.
func TestStatisticsOfLockedTables(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"ACCESS EXCLUSIVE", "SHARE UPDATE EXCLUSIVE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(
				`CREATE TABLE a_log (id integer) PARTITION BY RANGE (id);
				CREATE TABLE b_log PARTITION OF a_log FOR VALUES FROM (0) TO (10);
				CREATE TABLE c_table (i integer); CREATE TABLE z_table (i integer);
				INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', 0)`,
			)
			db.Superuser("ALTER DATABASE " + db.Name + " SET client_min_messages = 'error'")
			db.Hold("LOCK TABLE ONLY a_log, ONLY c_table IN " + mode + " MODE")
			for _, done := range []string{"vacuuming", "analyzing"} {
				j := mustRun(t, db, nil, "statistics")
				j.checkLog(t, "WARNING", `"public"."a_log" is locked`)
				j.checkLog(t, "WARNING", `"public"."c_table" is locked`)
				j.checkNoLog(t, `"public"."b_log" is locked`)
				for _, name := range []string{"b_log", "z_table"} {
					if got := j.vacuumed(); !slices.Contains(got, done+" "+name) {
						t.Errorf("%s was not processed: %q", name, got)
					}
				}
				j.checkLog(t, "INFO", "2 locked by others, 0 failed")
				j.checkRetained(t, "statistics", purge.Retained{Tables: 2})
				if got, want := j.details["statistics"], "VACUUM or ANALYZE failed on 2 tables"; got != want {
					t.Errorf("the detail is %q, want %q", got, want)
				}
				db.Do("UPDATE XtkOption SET iLongValue = 2")
			}
		})
	}
}

// A table that gets another owner before its turn is skipped by the server, reported and counted. A partition that is
// locked, or that belongs to another role, is not reported as its parent.
func TestStatisticsOfTablesOfOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`CREATE TABLE a_table (i integer); CREATE TABLE z_table (i integer);
		CREATE TABLE a_log (id integer) PARTITION BY RANGE (id);
		CREATE TABLE b_log PARTITION OF a_log FOR VALUES FROM (0) TO (10);
		CREATE TABLE c_log PARTITION OF a_log FOR VALUES FROM (10) TO (20)`)
	_, pool := db.Inject(func(sql string) string {
		if strings.HasPrefix(sql, "VACUUM") && strings.HasSuffix(sql, `"a_table"`) {
			db.Superuser("ALTER TABLE a_table OWNER TO postgres")
		}
		return ""
	})
	// the owner of the database may vacuum all
	db.Superuser("ALTER TABLE b_log OWNER TO " + db.Role("other") + "; ALTER DATABASE " + db.Name + " OWNER TO postgres")
	db.Hold("LOCK TABLE c_log IN SHARE UPDATE EXCLUSIVE MODE")
	j := mustRun(t, db, func(c *cleanup.Config) { c.Pool = pool }, "statistics")
	j.checkLog(t, "WARNING", `"public"."a_table": VACUUM or ANALYZE failed`, "SQLSTATE 01000")
	j.checkLog(t, "WARNING", `"public"."c_log" is locked`)
	j.checkLog(t, "INFO", "1 locked by others, 1 failed")
	j.checkNoLog(t, `"public"."a_log" is locked`)
	j.checkNoLog(t, `"public"."a_log": VACUUM or ANALYZE failed`)
	for _, want := range []string{"vacuuming z_table", "analyzing a_log"} {
		if got := j.vacuumed(); !slices.Contains(got, want) {
			t.Errorf("want %s: %q", want, got)
		}
	}
	j.checkRetained(t, "statistics", purge.Retained{Tables: 2})
}

// VACUUM truncates tables only if that is configured, since it locks them exclusively for that.
func TestVacuumTruncate(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkSessionInfo (sKey, sLogin, tsExpiration) SELECT i::text, repeat('x', 50), '2000-01-01' " +
		"FROM generate_series(1, 10000) i")
	before := db.Int("SELECT pg_relation_size('xtksessioninfo')")
	for _, truncate := range []bool{false, true} {
		mustRun(t, db, func(c *cleanup.Config) {
			c.VacuumTruncate, c.Succeeded = truncate, map[string]bool{"statistics": true}
		}, "sessions")
		if after := db.Int("SELECT pg_relation_size('xtksessioninfo')"); (after < before) != truncate {
			t.Errorf("truncate %t: it had %d bytes, and has %d", truncate, before, after)
		}
		db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('x', '2000-01-01')")
	}
}

// vacuumed returns the vacuumed and analyzed tables in order, without repetitions.
func (j *journal) vacuumed() []string {
	var done []string
	for _, line := range strings.Split(strings.Join(j.logs, "\n"), "\n") {
		m := regexp.MustCompile(`INFO:  (vacuuming|analyzing) "(?:\w+\.)?public\.(\w+)"`).FindStringSubmatch(line)
		if m != nil && !slices.Contains(done, m[1]+" "+m[2]) {
			done = append(done, m[1]+" "+m[2])
		}
	}
	return done
}

// Since PostgreSQL 17, MAINTAIN lets a role vacuum tables that it does not own. The log counts the remaining tables and
// suggests the GRANT.
func TestStatisticsByAGrant(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	since(t, db, 17)
	role := db.Role("maintainer")
	db.Do("CREATE TABLE own_table (i integer); GRANT SELECT, MAINTAIN ON ALL TABLES IN SCHEMA public TO " + role +
		"; CREATE TABLE other_table (i integer)")
	j := mustRun(t, db.For(role), nil, "statistics")
	done := j.vacuumed()
	if !slices.Contains(done, "vacuuming own_table") || !slices.Contains(done, "vacuuming nmsdelivery") ||
		slices.Contains(done, "vacuuming other_table") {
		t.Errorf("vacuumed: %q", done)
	}
	j.checkLog(t, "INFO", "1 tables of public belong to another role", "GRANT MAINTAIN ON ALL TABLES")
}
