package tasks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// What applications write for "none" is no link to a parent, whatever its type.
func TestValuesThatAreNoLinks(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	var policies []policy.Policy
	for kind, values := range map[string][3]string{ // of a parent, of an orphan, and of none
		"int":         {"1", "2", "0"},
		"numeric":     {"1", "2", "0.00"},
		"text":        {"a", "b", ""},
		"varchar(20)": {"a", "b", "0"},
		"char(10)":    {"a", "b", ""},
		"uuid": {
			"11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222",
			"00000000-0000-0000-0000-000000000000",
		},
	} {
		schema := inSchema(db, "of "+kind, fmt.Sprintf(`CREATE TABLE parent (id %[1]s PRIMARY KEY);
			CREATE TABLE child (id int PRIMARY KEY, parent %[1]s); INSERT INTO parent VALUES ('%[2]s');
			INSERT INTO child VALUES (1, '%[2]s'), (2, '%[3]s'), (3, '%[4]s'), (4, NULL)`,
			kind, values[0], values[1], values[2]))
		policies = append(policies, policy.Policy{
			Name: schema, Table: schema + ".child",
			OrphanOf: &policy.OrphanOf{Column: "parent", ParentTable: schema + ".parent", ParentColumn: "id"},
		})
	}
	if _, err := runPolicies(t, db, false, policies...); err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		checkRows(t, db, "SELECT id::text FROM "+p.Table+" ORDER BY id", "1", "3", "4")
	}
}

// Another server may hide rows of a parent, or of a part of it.
func TestForeignParentProvesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(family)
	far := db.Far()
	db.MoveAway(far, "customer")
	before := everything(db)
	j, _ := runPolicies(t, db, false, orphanPurchases)
	j.checkState(t, orphanPurchases.TaskName(), cleanup.Skipped)
	if said := strings.Join(j.logs, "; "); !strings.Contains(said, "foreign table") || everything(db) != before {
		t.Errorf("rows changed, or the log is %s", said)
	}
}

// All missing rights are named at once, even if the rule cannot be compiled without them. Rights to some columns do not
// suffice, since a sweep reads the TIDs of rows.
func TestMissingRightsAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role, columns := db.Role("cleaner"), db.Role("columns")
	db.Do(family + `; CREATE TABLE tree (id int PRIMARY KEY, at date, parent int REFERENCES tree ON DELETE CASCADE);
		CREATE TABLE leaf (tree int REFERENCES tree ON DELETE CASCADE)`)
	err := checkPolicy(t, db.For(role), orphanPurchases)
	checkError(t, err, `GRANT SELECT, DELETE ON "public"."purchase"`, `GRANT SELECT ON "public"."customer"`)
	tree := policy.Policy{Name: "p", Table: "tree", OlderThan: &policy.OlderThan{Column: "at", Days: new(30)}}
	err = checkPolicy(t, db.For(role), tree)
	checkError(t, err, `GRANT SELECT, DELETE ON "public"."tree"`, `GRANT SELECT ON "public"."leaf"`)
	db.Do("CREATE SCHEMA lab; CREATE TYPE lab.state AS ENUM ('open'); CREATE TABLE lab.result (state lab.state, at date)")
	tree.Table = "lab.result"
	tree.Filters = []policy.Filter{{Column: "state", Op: "EQUAL", Values: []string{"open"}}}
	err = checkPolicy(t, db.For(role), tree) // its values cannot be read without the schema
	checkError(t, err, `GRANT USAGE ON SCHEMA "lab"`, `GRANT SELECT, DELETE ON "lab"."result"`)
	db.Do("ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE CASCADE; " +
		"GRANT SELECT (id, seen) ON customer TO " + columns + "; GRANT SELECT (id, customer) ON purchase TO " + columns)
	err = checkPolicy(t, db.For(columns), oldCustomers)
	checkError(t, err, `GRANT DELETE, SELECT ON "public"."customer" TO "`+columns+`"`,
		`GRANT SELECT ON "public"."purchase" TO "`+columns+`"`)
}

// checkPolicy checks a policy in the same way as setting it does.
func checkPolicy(t *testing.T, db *pgtest.DB, p policy.Policy) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		catalog, err := campaign.LoadCatalog(t.Context(), tx, campaign.Scope{Named: p.Task().Names, NoCampaign: true})
		if err != nil {
			return err
		}
		return p.Check(t.Context(), tx, rules.Env{Catalog: catalog})
	})
}

// A row whose parent is not committed yet is no orphan.
func TestUncommittedParents(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(family + "; DELETE FROM purchase; INSERT INTO purchase VALUES (1, 5000, now())")
	tx := db.Hold("INSERT INTO customer SELECT (jsonb_populate_record(c, '{\"id\": 5000}')).* FROM customer c LIMIT 1")
	j, err := runPolicies(t, db, false, orphanPurchases)
	if said := strings.Join(j.logs, "; "); err != nil || !strings.Contains(said, "has been writing") {
		t.Errorf("%v; the log is %s", err, said)
	}
	checkCount(t, db, 1, "SELECT count(*) FROM purchase")
	begun, watcher, ended := time.Now(), db.For(campaigndb.Role), make(chan error, 1)
	go func() {
		var err error
		j, err = runPolicies(t, db, false, orphanPurchases)
		ended <- err
	}()
	watcher.Until(`SELECT count(*) FROM pg_stat_activity
		WHERE query LIKE 'SELECT DISTINCT virtualtransaction FROM pg_locks%' AND query_start > $1`, begun)
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	err = <-ended
	if said := strings.Join(j.logs, "; "); err != nil || strings.Contains(said, "has been writing") {
		t.Errorf("%v; the log is %s", err, said)
	}
	checkCount(t, db, 1, "SELECT count(*) FROM purchase")
}
