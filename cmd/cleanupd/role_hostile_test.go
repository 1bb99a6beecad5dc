package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// The owner of the database has a function that makes a role superuser if a superuser calls it. The function is
// declared immutable, so that the planner calls it.
func hostile(t *testing.T) (db *pgtest.DB, role string) {
	t.Helper()
	db = pgtest.Campaign(t)
	role = db.Role("hostile")
	db.Do(`CREATE FUNCTION evil(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
			EXECUTE 'ALTER ROLE ` + role + ` SUPERUSER'; RETURN n;
		EXCEPTION WHEN OTHERS THEN RETURN n; END $$;
		CREATE FUNCTION meek(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN public.evil(n); END';
		CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM public.evil(1); RETURN NEW; END';
		INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'cus:broadLogStore')`)
	return db, role
}

// A statement in a function that the planner calls.
func within(statement string) string {
	return `CREATE FUNCTION act() RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
		CREATE FUNCTION detour(n int) RETURNS int IMMUTABLE
			LANGUAGE plpgsql AS 'BEGIN PERFORM public.act(); RETURN n; END';
		CREATE INDEX ON NmsDeliveryMapping ((detour(1)));
		CREATE OR REPLACE FUNCTION act() RETURNS void LANGUAGE plpgsql AS $$ BEGIN ` + statement + `; END $$`
}

// The owner of the application's tables can have code run by every role that reads them or plans a query on them. The
// scripts never let a superuser run it, and still grant the rights.
func TestRoleScriptsAgainstTheOwner(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]string{
		"expression index": "CREATE INDEX ON NmsDeliveryMapping ((meek(1)))",
		"index predicate":  "CREATE INDEX ON NmsDeliveryMapping (iDeliveryMappingId) WHERE meek(1) > 0",
		"statistics":       "CREATE STATISTICS s ON (meek(1)), sName FROM NmsDeliveryMapping",
		"check": "ALTER TABLE NmsDeliveryMapping ADD CHECK (meek(1) > 0); ALTER DATABASE %db SET " +
			"constraint_exclusion = on",
		"child table": "CREATE TABLE child () INHERITS (NmsDeliveryMapping); CREATE INDEX ON child ((meek(1)))",
		"partition key": "ALTER TABLE NmsDeliveryMapping RENAME TO before; CREATE TABLE NmsDeliveryMapping (LIKE " +
			"before) PARTITION BY RANGE ((iDeliveryMappingId + meek(1))); CREATE TABLE part PARTITION OF " +
			"NmsDeliveryMapping DEFAULT; INSERT INTO NmsDeliveryMapping TABLE before",
		"view":    "CREATE VIEW bait AS SELECT evil(1) AS n; " + within("PERFORM n FROM public.bait"),
		"default": "CREATE TABLE bait (n int DEFAULT evil(1)); " + within("INSERT INTO public.bait DEFAULT VALUES"),
		"rule": "CREATE TABLE bait (n int); CREATE RULE r AS ON INSERT TO bait DO ALSO SELECT evil(1); " +
			within("INSERT INTO "+
				"public.bait VALUES (1)"),
		"trigger": "CREATE TABLE bait (n int); CREATE TRIGGER t BEFORE INSERT ON bait FOR EACH ROW EXECUTE " +
			"FUNCTION evil(); " + within("INSERT INTO public.bait VALUES (1)"),
		"deferred trigger": "CREATE TABLE bait (n int); CREATE CONSTRAINT TRIGGER t AFTER INSERT ON bait DEFERRABLE " +
			"INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION evil(); " + within("INSERT INTO public.bait VALUES (1)"),
		"domain": "CREATE DOMAIN bad AS int CHECK (evil(VALUE) > 0); " + within("PERFORM 1::public.bad"),
		"operator": "CREATE OPERATOR @@@ (FUNCTION = meek, RIGHTARG = int); CREATE INDEX ON " +
			"NmsDeliveryMapping ((@@@ 1))",
		"cast": "CREATE TYPE mood AS ENUM ('x'); CREATE FUNCTION tell(mood) RETURNS int IMMUTABLE " +
			"LANGUAGE sql AS 'SELECT public.meek(1)'; CREATE CAST (mood AS int) WITH FUNCTION tell(mood); CREATE " +
			"INDEX ON NmsDeliveryMapping (('x'::mood::int))",
		"search path": "CREATE FUNCTION format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT " +
			"evil(1)::text $$; ALTER DATABASE %db SET search_path = public, pg_catalog",
		"mapping as a view": "ALTER TABLE NmsDeliveryMapping RENAME TO before; CREATE VIEW NmsDeliveryMapping AS " +
			"SELECT *, evil(1) FROM before",
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "expression index", "search path", "rule", "mapping as a view")
			t.Parallel()
			db, role := hostile(t)
			db.Do(strings.ReplaceAll(plant, "%db", db.Name))
			least := leastRole(t, db)
			if out, err := psql(t, db, "rights.sql", "postgres", "-v", "role="+least); err == nil ||
				!strings.Contains(out, "run this as the application's role") {
				t.Errorf("a superuser may run it: %v %s", err, out)
			}
			if db.Int("SELECT rolsuper::int FROM pg_roles WHERE rolname = $1", role) != 0 {
				t.Error("the owner made a role superuser")
			}
			for _, table := range []string{"NmsDelivery", "XtkAudit"} {
				if db.Int("SELECT has_table_privilege($1, $2, 'SELECT, DELETE')::int", least, table) != 1 {
					t.Errorf("nothing is granted on %s", table)
				}
			}
			if granted := db.Int(
				"SELECT has_table_privilege($1, 'CusBroadLogStore', 'DELETE')::int", least,
			) == 1; granted == (name == "mapping as a view") {
				t.Errorf("the rights on a mapped table: %t", granted)
			}
			db.Superuser("ALTER ROLE " + role + " NOSUPERUSER")
		})
	}
}

// The superuser's script refuses to adopt what another role created, and then changes nothing.
func TestRoleScriptAdoptsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ plant, says string }{
		"schema": {
			"DROP SCHEMA cleanupd CASCADE; CREATE SCHEMA cleanupd AUTHORIZATION neolane",
			"the schema cleanupd belongs to neolane",
		},
		"trash": {
			"DROP SCHEMA cleanupd_trash CASCADE; CREATE SCHEMA cleanupd_trash AUTHORIZATION neolane",
			"the schema cleanupd_trash belongs to neolane",
		},
		"table": {
			"CREATE TABLE cleanupd.run (); ALTER TABLE cleanupd.run OWNER TO neolane",
			"cleanupd.run belongs to neolane",
		},
		"view": {
			"CREATE VIEW cleanupd.run AS SELECT 1; ALTER VIEW cleanupd.run OWNER TO neolane",
			"cleanupd.run belongs to neolane",
		},
		"function": {
			"CREATE FUNCTION cleanupd.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION " +
				"cleanupd.f OWNER TO neolane",
			"cleanupd.f() belongs to neolane",
		},
		"our function": {
			"ALTER FUNCTION cleanupd.drop_work_tables OWNER TO %hostile", "drop_work_tables(regclass[]) belongs to",
		},
		"type": {
			"CREATE DOMAIN cleanupd.d AS int; ALTER DOMAIN cleanupd.d OWNER TO neolane",
			"cleanupd.d belongs to neolane",
		},
		"operator": {
			"CREATE OPERATOR cleanupd.@@@ (FUNCTION = int4um, RIGHTARG = int); ALTER OPERATOR " +
				"cleanupd.@@@ (NONE, int) OWNER TO neolane",
			"@@@(NONE,integer) belongs to neolane",
		},
		"trigger": {
			"SET ROLE %least; CREATE TABLE cleanupd.run (); RESET ROLE; CREATE TRIGGER t BEFORE " +
				"DELETE ON cleanupd.run EXECUTE FUNCTION public.evil()",
			"the trigger t on cleanupd.run belongs to neolane",
		},
		"event trigger": {
			"CREATE FUNCTION planted() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; CREATE " +
				"EVENT TRIGGER %db_e ON ddl_command_end EXECUTE FUNCTION planted(); ALTER FUNCTION planted OWNER TO " +
				"neolane",
			"would call a function of neolane",
		},
		"membership": {"GRANT %least TO neolane", "is a member of that role"},
		"view on it all": {
			"CREATE VIEW public.v AS SELECT WHERE cleanupd.drop_work_tables('{}') IS NULL",
			"view public.v depends on function cleanupd.drop_work_tables",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "schema", "trash", "our function", "membership")
			t.Parallel()
			db, role := hostile(t)
			least := leastRole(t, db)
			db.Superuser(strings.NewReplacer("%least", least, "%hostile", role, "%db", db.Name).Replace(test.plant))
			const state = `SELECT string_agg(n.nspowner::text || n.nspacl::text || p.oid::text || p.proacl::text, ' ')
				FROM pg_namespace n LEFT JOIN pg_proc p ON p.pronamespace = n.oid AND proname = 'drop_work_tables'
				WHERE nspname = 'cleanupd'`
			before := db.Strings("SELECT coalesce((" + state + "), '')")
			if out, err := psql(t, db, "role.sql", "postgres", "-v", "role="+least); err == nil ||
				!strings.Contains(out, test.says) {
				t.Errorf("%v %s", err, out)
			}
			if after := db.Strings("SELECT coalesce((" + state + "), '')"); !slices.Equal(before, after) {
				t.Errorf("it did something: %s, and then %s", before, after)
			}
		})
	}
}

// Other roles lose their rights on the schema and on the function, whether granted before or by default.
func TestRoleScriptRevokes(t *testing.T) {
	t.Parallel()
	db, role := hostile(t)
	least := leastRole(t, db)
	db.Superuser(
		"GRANT ALL ON SCHEMA cleanupd, cleanupd_trash TO PUBLIC; " +
			"GRANT ALL ON SCHEMA cleanupd TO " + role + " WITH GRANT OPTION; " +
			"GRANT EXECUTE ON FUNCTION cleanupd.drop_work_tables TO PUBLIC, " + role +
			"; ALTER DEFAULT PRIVILEGES IN SCHEMA cleanupd GRANT EXECUTE ON FUNCTIONS TO " + role,
	)
	if out, err := psql(t, db, "role.sql", "postgres", "-v", "role="+least); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	got := db.Strings(
		`SELECT concat_ws(' ', a.grantee::regrole, a.privilege_type) FROM pg_namespace, aclexplode(nspacl) a
			WHERE nspname IN ('cleanupd', 'cleanupd_trash')
		UNION ALL SELECT concat_ws(' ', a.grantee::regrole, a.privilege_type) FROM pg_proc, aclexplode(proacl) a
			WHERE proname = 'drop_work_tables' ORDER BY 1`,
	)
	if want := []string{
		"neolane EXECUTE",
		least + " CREATE",
		least + " CREATE",
		least + " EXECUTE",
		least + " USAGE",
		least + " USAGE",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The application's role can grant rights only on its own tables, and the script reports the others.
func TestRightsOnTablesOfOthers(t *testing.T) {
	t.Parallel()
	db, role := hostile(t)
	least := leastRole(t, db)
	db.Superuser("ALTER TABLE XtkAudit OWNER TO " + role)
	out, err := psql(t, db, "rights.sql", "neolane", "-v", "role="+least)
	if err != nil ||
		!strings.Contains(out,
			"public.xtkaudit belongs to "+role+": GRANT SELECT, DELETE ON public.xtkaudit TO "+least) ||
		strings.Count(out, "WARNING") != 1 {
		t.Errorf("%v %s", err, out)
	}
	for _, as := range []string{role, least} {
		if out, err := psql(t, db, "rights.sql", as, "-v", "role="+least); err == nil ||
			!strings.Contains(out, "run this as the application's role") {
			t.Errorf("%s: %v %s", as, err, out)
		}
	}
	for said, role := range map[string]string{
		"must have another one": "neolane",
		"run role.sql first":    "nobody_at_all",
	} {
		if out, err := psql(t, db, "rights.sql", "neolane", "-v", "role="+role); err == nil ||
			!strings.Contains(out, said) {
			t.Errorf("%s: %v %s", role, err, out)
		}
	}
}
