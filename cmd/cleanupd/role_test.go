package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
)

// leastRole creates a role with the scripts, as operators do. The long suite runs them twice, since the second time
// must change nothing.
func leastRole(t *testing.T, db *pgtest.DB, more ...string) (role string) {
	t.Helper()
	role = db.Name + "_least"
	for range suite.Size(suite.Long, 1, 2) {
		runRoleScripts(t, db, role, more...)
	}
	t.Cleanup(func() {
		db.Superuser("DROP SCHEMA IF EXISTS cleanupd, cleanupd_trash CASCADE; DROP OWNED BY " + role + "; DROP ROLE " + role)
	})
	return role
}

func runRoleScripts(t *testing.T, db *pgtest.DB, role string, more ...string) {
	t.Helper()
	args := append([]string{"-v", "role=" + role}, more...)
	for _, script := range []struct{ name, as string }{{"role.sql", "postgres"}, {"rights.sql", campaigndb.Role}} {
		// So that a cached result of the test depends on the script.
		if _, err := os.ReadFile(filepath.Join("../../deploy", script.name)); err != nil {
			t.Fatal(err)
		}
		if out, err := psql(t, db, script.name, script.as, args...); err != nil {
			t.Fatalf("%s: %v\n%s", script.name, err, out)
		}
	}
}

func psql(t *testing.T, db *pgtest.DB, script, as string, args ...string) (out string, err error) {
	t.Helper()
	if _, err := exec.LookPath("psql"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	said, err := exec.CommandContext(t.Context(), "psql", append([]string{
		"-X",
		"-q",
		"-d",
		db.As(as),
		"-f",
		"../../deploy/" + script,
	}, args...)...).
		CombinedOutput()
	return string(said), err
}

// campaignForRoles returns a database with everything that needs rights, and more. It is the same each time, as of half
// an hour after the first call, so that no row becomes obsolete while the tests run.
func campaignForRoles(t *testing.T) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, "for_roles", func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, campaigndb.Schema+`;
		CREATE TABLE NmsRecipient (iRecipientId integer PRIMARY KEY, sEmail text, iBroadLogId integer);
		CREATE TABLE CusBroadLogPart (LIKE NmsBroadLogRcp) PARTITION BY RANGE (tsLastModified);
		CREATE UNIQUE INDEX ON CusBroadLogPart (iBroadLogId, tsLastModified);
		CREATE TABLE CusBroadLogPart_rest PARTITION OF CusBroadLogPart DEFAULT;
		ALTER TABLE NmsExtAccount ADD sPassword text;
		ALTER SEQUENCE XtkNewId CACHE 1`); err != nil { // ids do not depend on the session
			return err
		}
		if err := campaigndb.Fill(
			ctx, conn, suite.Size(suite.Long, 4_000, 20_000), 1, time.Now().Add(30*time.Minute),
		); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `UPDATE NmsDelivery SET iDeliveryMode = 4, iMidRemoteId = iDeliveryId
			WHERE iDeleteStatus <> 0;
		INSERT INTO NmsDeliveryMapping
			VALUES (3, 'mapPart', 'cus:broadLogPart', NULL, NULL), (4, 'mapStrange', 'nms:recipient', NULL,
			'nms:nowhere');
		CREATE TABLE CusListMember AS SELECT iGroupId, iGroupId * 2 AS iMember FROM NmsGroup;
			CREATE INDEX ON CusListMember (iGroupId);
		ALTER TABLE CusListMember ADD FOREIGN KEY (iGroupId) REFERENCES NmsGroup (iGroupId)`)
		return err
	})
}

// The role of deploy/role.sql executes the whole pipeline with the same results and reports as the application's own
// role, the owner of all tables, on an equal database, except for VACUUM.
func TestLeastPrivilegedRole(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	run := func(url string) *replica {
		t.Helper()
		r := startServer(t, "--database-url", url)
		if code, out, errs := r.run(t, "run"); code != 0 {
			t.Fatalf("%d %s %s", code, out, errs)
		}
		return r
	}
	theirs, ours := campaignForRoles(t), campaignForRoles(t)
	before := contents(theirs)
	if !maps.Equal(before, contents(ours)) {
		t.Fatal("the databases differ before the runs")
	}
	run(theirs.URL())
	role := leastRole(t, ours)
	runRoleScripts(t, ours, role) // a second time changes nothing
	r := run(ours.As(role))

	after := contents(theirs)
	if changed := len(differing(before, after)); changed < 40 {
		t.Errorf("only %d tables were changed", changed)
	}
	for _, table := range differing(after, contents(ours)) {
		t.Errorf("%s: the role leaves something else than the owner", table)
	}
	least := ours.For(role)
	for what, sql := range map[string]string{
		"tasks": "SELECT concat_ws(' ', name, state, rows_deleted, rows_updated, tables_dropped, " +
			"remote_deliveries_retained) FROM cleanupd.task ORDER BY position",
		"left": "SELECT concat_ws(' ', account, remote_id, delivery_id, label) FROM cleanupd.remote_delivery " +
			"ORDER BY 1",
		"warnings": "SELECT body->>'Message' FROM cleanupd.event WHERE body->>'Level' = 'WARNING' ORDER BY 1",
	} {
		if theirs, ours := theirs.Strings(sql), least.Strings(sql); !slices.Equal(theirs, ours) || len(ours) == 0 {
			t.Errorf("%s of the owner and of the role:\n%s\n\n%s", what, strings.Join(theirs, "\n"),
				strings.Join(ours, "\n"))
		}
	}
	if states := least.Strings("SELECT state || ' ' || count(*) FROM cleanupd.task GROUP BY state"); !slices.Equal(
		states, []string{fmt.Sprintf("SUCCEEDED %d", len(tasks.Pipeline))},
	) {
		t.Errorf("the tasks ended %v", states)
	}
	if n := least.Int(
		"SELECT count(*) FROM cleanupd.event WHERE body->>'Message' LIKE '% left to autovacuum'",
	); n != 1 {
		t.Errorf("%d lines say what was not vacuumed", n)
	}

	// inserted, updated, deleted
	for _, body := range []string{
		`{"visitorPurgeDelayDays": 60}`, `{"visitorPurgeDelayDays": 61}`, `{"visitorPurgeDelayDays": null}`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, r.http+"/v1/options",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", body, resp, err)
		}
		_ = resp.Body.Close()
	}
}

// A fingerprint of each table and view of the application, without dates, which depend on the run, and without the ids
// of new entries of the job log, which are in any order.
func contents(db *pgtest.DB) map[string]string {
	found := map[string]string{}
	for _, line := range db.Strings(`SELECT c.relname || ' ' || COALESCE((xpath('/row/f/text()',
		query_to_xml(format('SELECT md5(string_agg(t::text, '','' ORDER BY t::text)) AS f FROM (SELECT %s FROM %s) t',
			(SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid
				AND attnum > 0 AND atttypid <> 'timestamptz'::regtype AND attname <> 'ijoblogid'),
			c.oid::regclass), false, true, '')))[1]::text, '')
		FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')`) {
		name, fingerprint, _ := strings.Cut(line, " ")
		found[name] = fingerprint
	}
	return found
}

// Tables that are not the same in both, or exist in only one.
func differing(a, b map[string]string) (names []string) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		inA, okA := a[name]
		if inB, okB := b[name]; inA != inB || okA != okB {
			names = append(names, name)
		}
	}
	return names
}

// The role has no right that it does not need.
func TestLeastPrivilegedRoleIsRefused(t *testing.T) {
	t.Parallel()
	db := campaignForRoles(t)
	role := leastRole(t, db)
	least, clerk := db.For(role), db.For(db.Role("clerk"))
	db.Do("SELECT 1") // a session of the application
	refused := func(db *pgtest.DB, sql string) {
		t.Helper()
		_, err := db.Exec(t.Context(), sql)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// The rights that the service lends the owner for a restore; here the owner must not misuse them.
	const lending = "CREATE TABLE cleanupd_trash.rows_1 (ivisitorid int, irecipientid int); " +
		"LOCK TABLE cleanupd_trash.rows_1 IN SHARE ROW EXCLUSIVE MODE; " +
		"GRANT USAGE, CREATE ON SCHEMA cleanupd_trash TO neolane; GRANT SELECT ON cleanupd_trash.rows_1 TO neolane; "
	for _, sql := range []string{
		"SELECT FROM NmsRecipient",
		"DELETE FROM NmsRecipient",
		"SELECT FROM NmsRecipient FOR UPDATE",
		"COPY NmsRecipient TO STDOUT",
		"SELECT FROM XtkOperatorGroup",
		"DELETE FROM XtkOperatorGroup",
		"SELECT sPassword FROM NmsExtAccount",
		"SELECT a FROM NmsExtAccount a",
		"SELECT mMemoValue FROM XtkOption",
		"UPDATE XtkOption SET iDataType = 6",
		"UPDATE XtkOption SET mMemoValue = ''",
		"UPDATE XtkOption SET sName = ''",
		"SELECT FROM grp500002",
		"SELECT FROM wkf99001_1",
		"DELETE FROM wkf12_3",
		"DELETE FROM XtkJob",
		"DELETE FROM XtkWorkflow",
		"UPDATE NmsExtAccount SET iActive = 1",
		"UPDATE NmsDeliveryMapping SET sBroadLogSchema = 'nms:recipient'",
		"UPDATE NmsVisitor SET sExternalId = ''",
		"INSERT INTO NmsVisitor DEFAULT VALUES",
		"INSERT INTO NmsDelivery DEFAULT VALUES",
		"UPDATE XtkAudit SET tsChanged = now()",
		"TRUNCATE XtkAudit",
		"DROP TABLE XtkAudit",
		"DROP TABLE wkf99001_1",
		"ALTER TABLE XtkAudit ADD x int",
		"CREATE INDEX ON XtkAudit (tsChanged)",
		"CREATE TRIGGER x BEFORE DELETE ON XtkAudit EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"CREATE RULE x AS ON DELETE TO XtkAudit DO INSTEAD NOTHING",
		"SELECT setval('XtkNewId', 1)",
		"SELECT setval('XtkJobLogId', 1)",
		"SELECT nextval('NmsBroadLogId')",
		"ALTER TABLE XtkAudit OWNER TO " + role,
		"CREATE TABLE public.x ()",
		"CREATE FUNCTION public.x() RETURNS void LANGUAGE sql AS ''",
		"CREATE SCHEMA x",
		"CREATE EXTENSION pg_trgm",
		"CREATE EXTENSION file_fdw",
		"SET ROLE neolane",
		"SET ROLE postgres",
		"SET SESSION AUTHORIZATION neolane",
		"GRANT neolane TO " + role,
		"CREATE ROLE x",
		"ALTER ROLE " + role + " SUPERUSER",
		"CREATE DATABASE x",
		"ALTER SYSTEM SET fsync = off",
		"SELECT FROM pg_authid",
		"SELECT pg_read_file('/etc/passwd')",
		"COPY (SELECT 1) TO PROGRAM 'true'",
		"SELECT lo_import('/etc/passwd')",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'neolane'",
		"SELECT cleanupd.drop_work_tables('{XtkAudit}')",
		"SELECT cleanupd.drop_work_tables('{wkf99001_1, NmsRecipient}')",
		"SELECT cleanupd.drop_work_tables('{pg_class}')",
		"CREATE TEMPORARY TABLE wkf1 (); SELECT cleanupd.drop_work_tables('{wkf1}')",
		"CREATE TABLE cleanupd.grp1 (); SELECT cleanupd.drop_work_tables('{cleanupd.grp1}')",
		"SELECT cleanupd.count_work_table('NmsRecipient')",
		"SELECT cleanupd.trash_work_table('XtkAudit', 'table_1', '{}')",
		"SELECT cleanupd.trash_work_table('wkf99001_1', 'XtkAudit', '{}')",
		"SELECT cleanupd.trash_work_table('wkf12_3', 'table_1', '{}')", // without the right to the schema
		"SELECT cleanupd.restore_work_table('wkf99001_1', 'public', 'wkf1', '{}')",
		"CREATE TABLE cleanupd_trash.table_1 (); " +
			"SELECT cleanupd.restore_work_table('cleanupd_trash.table_1', 'public', 'wkf1', '{}')",
		lending + "SELECT cleanupd.trash_work_table('wkf12_3', 'table_1', '{}'); " +
			"SELECT cleanupd.restore_work_table('cleanupd_trash.table_1', 'public', 'xtkaudit2', '{}')",
		lending + "SELECT cleanupd.restore_rows('cleanupd_trash.rows_1', 'NmsRecipient', '{irecipientid}', '{}', '{}')",
		lending + "SELECT cleanupd.restore_rows('cleanupd_trash.rows_1', 'wkf99001_1', '{irecipientid}', '{}', '{}')",
		lending + "ALTER TABLE cleanupd_trash.rows_1 ENABLE ROW LEVEL SECURITY; " +
			"SELECT cleanupd.restore_rows('cleanupd_trash.rows_1', 'NmsVisitor', '{ivisitorid}', '{}', '{}')",
		lending + "CREATE RULE r AS ON INSERT TO cleanupd_trash.rows_1 DO INSTEAD NOTHING; " +
			"SELECT cleanupd.restore_rows('cleanupd_trash.rows_1', 'NmsVisitor', '{ivisitorid}', '{}', '{}')",
		lending + "CREATE DOMAIN cleanupd_trash.d AS text; " +
			"ALTER TABLE cleanupd_trash.rows_1 ADD sexternalid cleanupd_trash.d; " +
			"SELECT cleanupd.restore_rows('cleanupd_trash.rows_1', 'NmsVisitor', '{ivisitorid}', '{}', '{}')",
		lending + "CREATE FUNCTION cleanupd_trash.f(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'; " +
			"CREATE INDEX ON cleanupd_trash.rows_1 ((cleanupd_trash.f(1))); " +
			"SELECT cleanupd.restore_rows('cleanupd_trash.rows_1', 'NmsVisitor', '{ivisitorid}', '{}', '{}')",
		lending + "CREATE STATISTICS cleanupd_trash.s ON ivisitorid, irecipientid FROM cleanupd_trash.rows_1; " +
			"SELECT cleanupd.restore_rows('cleanupd_trash.rows_1', 'NmsVisitor', '{ivisitorid}', '{}', '{}')",
		"CREATE TABLE cleanupd_trash.rows_1 (ivisitorid int); GRANT USAGE ON SCHEMA cleanupd_trash TO neolane; " +
			"GRANT SELECT ON cleanupd_trash.rows_1 TO neolane; " + // not locked
			"SELECT cleanupd.restore_rows('cleanupd_trash.rows_1', 'NmsVisitor', '{ivisitorid}', '{}', '{}')",
		lending + "ALTER TABLE cleanupd_trash.rows_1 RENAME TO other; " +
			"SELECT cleanupd.restore_rows('cleanupd_trash.other', 'NmsVisitor', '{ivisitorid}', '{}', '{}')",
		"CREATE OR REPLACE FUNCTION cleanupd.drop_work_tables(regclass[]) RETURNS void LANGUAGE sql AS ''",
		"ALTER FUNCTION cleanupd.drop_work_tables RESET ALL",
		"ALTER FUNCTION cleanupd.drop_work_tables OWNER TO " + role,
	} {
		refused(least, sql)
	}
	refused(clerk, "SELECT cleanupd.drop_work_tables('{wkf99001_1}')")
	db.Superuser("GRANT USAGE ON SCHEMA cleanupd TO " + clerk.Strings("SELECT current_user::text")[0])
	refused(clerk, "SELECT cleanupd.drop_work_tables('{wkf99001_1}')")

	// But it may lock rows of any table from which it may delete, and sees the sessions of others.
	for _, table := range least.Strings("SELECT oid::regclass::text FROM pg_class WHERE relnamespace = " +
		"'public'::regnamespace AND relkind IN ('r', 'p') AND has_table_privilege(oid, 'DELETE')") {
		least.Do("SELECT FROM " + table + " FOR UPDATE SKIP LOCKED")
	}
	if least.Int("SELECT count(*) FROM pg_stat_activity WHERE usename = 'neolane' AND state IS NOT NULL") == 0 {
		t.Error("it does not see what the application does")
	}
	least.Do("SELECT cleanupd.drop_work_tables('{wkf99001_1, wkf99001_1_view}')")
}

// With undo, the role moves work tables to the trash and back, with their indexes and rights, and its rows come back as
// the owner of their table inserts them.
func TestLeastPrivilegedRoleUndoes(t *testing.T) {
	t.Parallel()
	db := campaignForRoles(t)
	db.Do(`CREATE TYPE kind AS ENUM ('a', 'b'); ALTER TABLE XtkAudit ADD kind kind DEFAULT 'b';
		CREATE TABLE heard (name text); GRANT SELECT ON heard TO PUBLIC;
		CREATE FUNCTION hear() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO heard VALUES (current_user); RETURN NEW; END';
		CREATE TRIGGER hear AFTER INSERT ON XtkAudit EXECUTE FUNCTION hear();
		CREATE TABLE wkf88001_1 (id serial PRIMARY KEY, word text); INSERT INTO wkf88001_1 (word) VALUES ('x'), ('y');
		CREATE INDEX wkf88001_1_word ON wkf88001_1 (word); GRANT SELECT ON wkf88001_1 TO PUBLIC`)
	role := leastRole(t, db)
	db.Superuser("REVOKE ALL ON heard FROM " + role)
	const relations = `SELECT concat_ws(' ', relname, relkind, pg_get_userbyid(relowner), relacl,
			CASE WHEN relkind = 'r' THEN (xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM %s',
				oid::regclass), false, true, '')))[1]::text END)
		FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname ~ '^(wkf|grp|wkdlv|wksimu|xtkaudit)'
			AND relkind <> 'v' ORDER BY relname`
	before := db.Strings(relations)
	r := startServer(t, "--database-url", db.As(role))
	work := "--task orphan-work-tables --task work-tables --task audit-trail --task simulation-tables"
	code, out, errs := r.run(t, "run --undo 1h "+work)
	if code != 0 || !strings.Contains(out, "Undo until") {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	least := db.For(role)
	if n := least.Int("SELECT count(*) FROM cleanupd.trash WHERE kind = 'TABLE'"); n < 2 {
		t.Errorf("%d tables are in the trash", n)
	}
	id := least.Strings("SELECT id::text FROM cleanupd.run")[0]
	if code, out, errs = r.run(t, "trash restore "+id); code != 0 {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if diff := cmp.Diff(before, db.Strings(relations)); diff != "" {
		t.Errorf("what came back differs: %s", diff)
	}
	if heard := db.Strings("SELECT DISTINCT name FROM heard"); !slices.Equal(heard, []string{campaigndb.Role}) {
		t.Errorf("the trigger ran as %q, want the owner of the table", heard)
	}
	if left := db.Strings("SELECT nspacl::text FROM pg_namespace WHERE nspname = 'cleanupd_trash'"); strings.Contains(
		left[0], campaigndb.Role,
	) {
		t.Errorf("the owner keeps rights to the trash: %q", left)
	}
	db.Do("INSERT INTO wkf88001_1 (word) VALUES ('z')") // its sequence works
}

// A role that is granted what the errors of the service ask for, one after another, finally has what the script grants,
// except the rights listed here, which the service cannot know beforehand.
func TestLeastPrivilegedRoleHasWhatIsAsked(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := campaignForRoles(t)
	role, clerk := leastRole(t, db), db.Role("clerk")
	if code, _, errs := cleanupd(t, "migrate", "--database-url", db.As(role)); code != 0 {
		t.Fatalf("%d %s", code, errs)
	}
	db.Superuser(
		"GRANT USAGE ON SCHEMA cleanupd TO " + clerk + "; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN " +
			"SCHEMA cleanupd TO " + clerk +
			"; GRANT EXECUTE ON FUNCTION cleanupd.drop_work_tables TO " + clerk,
	)
	for _, grant := range []string{
		"SELECT (iOptionId, sName, iDataType, iLongValue, sStringValue, tsTimeStampValue), UPDATE (iLongValue, " +
			"sStringValue, tsTimeStampValue), INSERT (iOptionId, sName, iDataType, iLongValue, tsTimeStampValue), " +
			"DELETE ON XtkOption",
		"SELECT (iExtAccountId, sName, iActive) ON NmsExtAccount",
		"SELECT, INSERT, DELETE ON NmsEmailErrorStat",
		"INSERT ON XtkJobLog",
		"USAGE ON SEQUENCE XtkNewId, XtkJobLogId",
		"SELECT, UPDATE, DELETE ON CusBroadLogPart_rest",
	} {
		db.Do("GRANT " + grant + " TO " + clerk)
	}
	r := startServer(t, "--database-url", db.As(clerk))
	for {
		code, out, errs := r.run(t, "run")
		grants := regexp.MustCompile(`GRANT [A-Z, ]+ ON "public"\."\w+" TO "\w+"`).FindAllString(errs, -1)
		if code == 0 {
			break
		}
		if grants == nil {
			t.Fatalf("%d %s %s", code, out, errs)
		}
		db.Do(strings.Join(grants, ";"))
	}
	rights := func(role string) []string {
		return db.Strings(
			`SELECT concat_ws(' ', c.oid::regclass, a.privilege_type) FROM pg_class c, aclexplode(c.relacl) a
			WHERE relnamespace = 'public'::regnamespace AND a.grantee = $1::text::regrole ORDER BY 1`,
			role,
		)
	}
	if given, asked := rights(role), rights(clerk); !slices.Equal(given, asked) {
		t.Errorf("given:\n%s\n\nasked:\n%s", strings.Join(given, "\n"), strings.Join(asked, "\n"))
	}
}

// The application's schema may have any name. A role that is made a member of the owner vacuums, too.
func TestLeastPrivilegedRoleInAnotherSchema(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01'); CREATE TABLE wkDlv_1_1 (); INSERT INTO " +
			"NmsDelivery (iDeliveryId) VALUES (2)",
	)
	db.Superuser(`ALTER SCHEMA public RENAME TO "The Campaign"`)
	role := leastRole(t, db, "-v", "schema=The Campaign")
	r := startServer(t, "--database-url", db.As(role))
	code, out, errs := r.run(t, "run --task audit-trail --task work-tables --task statistics")
	if code != 0 || !strings.Contains(out, "succeeded, 1 row deleted") ||
		!strings.Contains(out, "succeeded, 1 table dropped") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	const vacuumed = `SELECT count(*) FROM cleanupd.space WHERE task = 'statistics'
		AND relation = '"The Campaign"."xtkaudit"'`
	least := db.For(role)
	if least.Int(vacuumed) != 0 {
		t.Error("it vacuums a table of the application's")
	}
	db.Superuser("GRANT neolane TO " + role)
	if code, out, errs := r.run(t, "run --task statistics"); code != 0 ||
		least.Int(vacuumed) != 1 {
		t.Errorf("as the owner's member: %d %s %s", code, out, errs)
	}
}

// In a database without Campaign, the script grants no rights on tables; the grants of policies do.
func TestLeastPrivilegedRoleOfAnyDatabase(t *testing.T) {
	t.Parallel()
	f := &policyFiles{T: t, db: pgtest.Empty(t), dir: t.TempDir()}
	f.db.Do(`CREATE SCHEMA shop; CREATE TABLE shop.orders (id int PRIMARY KEY, placed timestamptz);
		INSERT INTO shop.orders SELECT i, now() - i * interval '1 day' FROM generate_series(1, 100) i`)
	role := f.db.Name + "_least"
	for range 2 { // the second time it changes nothing
		out, err := psql(t, f.db, "role.sql", "postgres", "-v", "role="+role)
		if err != nil || !strings.Contains(out, "cleanupd policies grants") {
			t.Fatalf("%v %s", err, out)
		}
	}
	t.Cleanup(func() {
		f.db.Superuser("DROP SCHEMA IF EXISTS cleanupd CASCADE; DROP OWNED BY " + role + "; DROP ROLE " + role)
	})
	if n := f.db.Int("SELECT count(*) FROM pg_proc WHERE proname = 'drop_work_tables'"); n != 0 {
		t.Error("there is a function that drops work tables")
	}
	f.replica = startServer(t, "--database-url", f.db.As(role))
	file := f.file("name: old-orders\ntable: shop.orders\nenabled: true\nolderThan: {column: placed, days: 30}\n")
	code, _, errs := f.do("apply", file, "--yes")
	if code != 1 || !strings.Contains(errs, `GRANT USAGE ON SCHEMA "shop"`) ||
		!strings.Contains(errs, `GRANT SELECT, DELETE ON "shop"."orders"`) {
		t.Errorf("%d %s", code, errs)
	}
	_, script, _ := f.do("grants", file)
	f.db.Do(script)
	if code, out, errs := f.do("apply", file, "--yes"); code != 0 {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, out, errs := f.run(t, "run", "--preview", "--yes", "--undo", "1h")
	if code != 0 || !strings.Contains(out, "71 rows deleted") {
		t.Errorf("%d %s %s", code, out, errs)
	}

	// Rows come back as their owner inserts them, or into a schema of the role's; either takes a GRANT.
	owner, schema := fmt.Sprintf("GRANT %s TO %s", f.db.Strings("SELECT current_user::text")[0], role),
		fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", f.db.Name, role)
	id := f.db.For(role).Strings("SELECT id::text FROM cleanupd.run WHERE NOT dry_run")[0]
	restore := "trash restore " + id
	_, refused, errs := f.run(t, restore)
	for _, said := range []string{out, errs} {
		if said = strings.Join(strings.Fields(said), " "); !strings.Contains(said, owner) || !strings.Contains(said, schema) {
			t.Errorf("%q lacks one of %s and %s; %s", said, owner, schema, refused)
		}
	}
	if code, _, errs := f.run(t, restore+" --into restored"); code != 1 || !strings.Contains(errs, schema) {
		t.Errorf("%d %s", code, errs)
	}
	if n := f.db.For(role).Int("SELECT count(*) FROM cleanupd.run WHERE restore IS NOT NULL"); n != 0 {
		t.Errorf("%d restores were started, want none", n)
	}
	if code, _, errs := f.run(t, restore+" --into restored --table orders --key 40"); code != 2 ||
		!strings.Contains(errs, "--key: cannot be given") || !strings.Contains(errs, "--into") {
		t.Errorf("%d %s", code, errs)
	}
	f.db.Superuser(schema)
	if out, err := psql(t, f.db, "role.sql", "postgres", "-v", "role="+role); err != nil {
		t.Errorf("with rows in the trash: %v %s", err, out)
	}
	if code, out, errs := f.run(t, restore+" --into restored"); code != 0 || !strings.Contains(out, "71 rows restored") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if out, err := psql(t, f.db, "role.sql", "postgres", "-v", "role="+role); err == nil ||
		!strings.Contains(out, "ALTER TABLE restored.orders OWNER TO") {
		t.Errorf("with a restored table: %v %s", err, out)
	}
}

// What first runs as the owner of the tables have stored is not lost to the new role.
func TestLeastPrivilegedRoleAfterRunsAsTheOwner(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	f := &policyFiles{T: t, db: pgtest.Empty(t), dir: t.TempDir()}
	f.db.Do(`CREATE TABLE orders (id int PRIMARY KEY, placed timestamptz);
		INSERT INTO orders SELECT i, now() - i * interval '1 day' FROM generate_series(1, 100) i`)
	file := f.file("name: old-orders\ntable: orders\nenabled: true\nolderThan: {column: placed, days: 30}\n")
	owner := []string{"--database-url", f.db.URL()}
	for _, command := range []string{"policies apply " + file + " --yes", "run --preview --yes --undo 1h"} {
		if code, out, errs := cleanupd(t, append(strings.Fields(command), owner...)...); code != 0 {
			t.Fatal(out, errs)
		}
	}
	role := f.db.Name + "_least"
	t.Cleanup(func() {
		f.db.Superuser("DROP SCHEMA cleanupd, cleanupd_trash CASCADE; DROP OWNED BY " + role + "; DROP ROLE " + role)
	})
	script := func(args ...string) (string, error) {
		return psql(t, f.db, "role.sql", "postgres", append([]string{"-v", "role=" + role}, args...)...)
	}
	from := "from=" + campaigndb.Role
	out, err := script("-v", from)
	if err == nil || !strings.Contains(out, "cleanupd trash restore or purge them first") {
		t.Errorf("%v %s", err, out)
	}
	if code, out, errs := cleanupd(t, append(strings.Fields("trash purge --all --yes"), owner...)...); code != 0 {
		t.Fatal(out, errs)
	}
	if out, err = script(); err == nil || !strings.Contains(out, "-v "+from+" gives it to "+role) {
		t.Errorf("%v %s", err, out)
	}
	if out, err = script("-v", from); err != nil || strings.Contains(out, "warning") {
		t.Fatalf("%v %s", err, out)
	}
	f.replica = startServer(t, "--database-url", f.db.As(role))
	_, grants, _ := f.do("grants", file)
	f.db.Do(grants + "; INSERT INTO orders VALUES (101, '2020-01-01')")
	code, out, errs := f.run(t, "run")
	if code != 0 || f.db.Int("SELECT count(*) FROM orders WHERE id = 101") != 0 {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs = f.run(t, "runs list"); code != 0 || strings.Count(out, "succeeded") != 3 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// The schema cleanupd is that of "$user" for the role cleanupd, by the scripts' default. Names without a schema, of
// policies and in triggers, mean the application's tables all the same.
func TestNamesMeanTheApplicationsTables(t *testing.T) {
	t.Parallel()
	db, _ := pgtest.Private(t)
	runRoleScripts(t, db, "cleanupd")
	db.Do(`CREATE TABLE event (at timestamptz); INSERT INTO event VALUES (now());
		CREATE TABLE hold (id int PRIMARY KEY, at timestamptz); INSERT INTO hold VALUES (1, '2020-01-01'), (2, now());
		CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM event; RETURN NULL; END';
		CREATE TRIGGER forget AFTER DELETE ON hold FOR EACH ROW EXECUTE FUNCTION forget();
		GRANT SELECT, DELETE ON hold, event TO cleanupd`)
	url := []string{"--database-url", db.As("cleanupd")}
	code, out, errs := cleanupd(t, append(strings.Fields("run --older-than hold.at=9d --yes"), url...)...)
	if code != 0 || !strings.Contains(out, "1 row deleted") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if n := db.Int("SELECT (SELECT count(*) FROM event) * 10 + (SELECT count(*) FROM hold)"); n != 1 {
		t.Errorf("%d: the events are not deleted, or another number of holds", n)
	}
	if n := db.For("cleanupd").Int("SELECT count(*) FROM cleanupd.event"); n == 0 {
		t.Error("the trigger has deleted the service's events")
	}
}

// The script does nothing if it would harm the role.
func TestLeastPrivilegedRoleIsANewOne(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	for _, role := range []string{"neolane", "postgres"} {
		if out, err := psql(t, db, "role.sql", "postgres", "-v", "role="+role); err == nil ||
			!strings.Contains(out, "must have another one") {
			t.Errorf("%s: %v %s", role, err, out)
		}
	}
	other := pgtest.Empty(t)
	other.Do("CREATE TABLE orders (id int)")
	if out, err := psql(t, other, "role.sql", "postgres", "-v", "role=neolane"); err == nil ||
		!strings.Contains(out, "that role owns public.orders") {
		t.Errorf("the owner of tables: %v %s", err, out)
	}
	other.Do("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.NmsDelivery (iDeliveryId int)")
	if out, err := psql(t, other, "role.sql", "postgres"); err == nil || !strings.Contains(out, "no table NmsDelivery") {
		t.Errorf("Campaign in another schema: %v %s", err, out)
	}
	db.Do("DELETE FROM XtkAudit")
}
