package tasks_test

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// A row is found by a key of any usual type, in any spelling of names.
func TestExplainByKeysOfOtherTypes(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE shipment (id uuid PRIMARY KEY, at date);
		INSERT INTO shipment VALUES ('255f2bf1-7d24-4f59-93c7-26cd4eb0c8d5', '2020-01-01');
		CREATE TABLE route (day date, vehicle int, at date, PRIMARY KEY (day, vehicle));
		INSERT INTO route VALUES ('2025-07-20', 3, '2020-01-01');
		CREATE TABLE "Note" ("Id" bigint PRIMARY KEY, "At" date); INSERT INTO "Note" VALUES (5, '2020-01-01');
		CREATE EXTENSION citext; CREATE TYPE kind AS ENUM ('a', 'b');
		CREATE TABLE tag (tenant int, name citext, kind kind, at date, PRIMARY KEY (tenant, name, kind));
		INSERT INTO tag VALUES (1, 'Bug,x=y', 'b', '2020-01-01');
		CREATE TABLE stop (seen timestamptz, due timestamp, at date, PRIMARY KEY (seen, due));
		INSERT INTO stop VALUES ('2025-09-08 17:09:02.964532+00', '2025-09-08 17:09:02', '2020-01-01');
		CREATE TABLE parcel (shipment uuid REFERENCES shipment ON DELETE CASCADE)`)
	for _, c := range []struct {
		table string
		key   []insight.KeyColumn
	}{
		{"shipment", []insight.KeyColumn{{Value: "255f2bf1-7d24-4f59-93c7-26cd4eb0c8d5"}}},
		{"shipment", []insight.KeyColumn{{Column: "ID", Value: "255F2BF1-7D24-4F59-93C7-26CD4EB0C8D5"}}},
		{"route", []insight.KeyColumn{{Column: "vehicle", Value: "3"}, {Column: "day", Value: "2025-07-20"}}},
		{"tag", columnsOf("tenant=1,name=bug,x=y,kind=b")},
		{"stop", columnsOf("seen=2025-09-08T17:09:02.964532Z,due=2025-09-08T17:09:02Z")},
		{"stop", columnsOf("seen=2025-09-08 17:09:02.964532+00,due=2025-09-08 17:09:02")},
		{"stop", columnsOf("seen=2025-09-08 22:39:02.964532+05:30,due=2025-09-08 17:09:02")},
		{`"Note"`, []insight.KeyColumn{{Value: "5"}}},
		{`"Note"`, []insight.KeyColumn{{Column: "Id", Value: "5"}}},
	} {
		p := policy.Policy{
			Name: "p", Table: c.table, Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		}
		if c.table == `"Note"` {
			p.OlderThan.Column = "At"
		}
		e, err := insight.NewExplainer(t.Context(), cleanup.Config{
			Pool: db.Pool, Now: now, NoCampaign: true, Pipeline: []rules.Task{p.Task()},
		}, rules.Holds{}, c.table)
		if err != nil {
			t.Fatal(err)
		}
		if c.table == "shipment" {
			below, err := insight.NewExplainer(t.Context(), cleanup.Config{
				Pool: db.Pool, Now: now, NoCampaign: true, Pipeline: []rules.Task{p.Task()},
			}, rules.Holds{}, "parcel")
			if err == nil {
				_, err = below.Row(t.Context(), []insight.KeyColumn{{Value: "5"}}, func() error { return nil })
			}
			checkError(t, err, "no task and no policy covers parcel", "with those of public.shipment")
		}
		x, err := e.Row(t.Context(), c.key, func() error { return nil })
		if err != nil || !x.Exists || x.Verdict != insight.Deleted {
			t.Errorf("%s %v: %+v, %v", c.table, c.key, x, err)
		}
	}
}

// A key that is none is answered by what the table has.
func TestExplainByKeysThatAreNone(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TYPE kind AS ENUM ('a', 'b'); CREATE TABLE tag (tenant int, kind kind, at date,
		PRIMARY KEY (tenant, kind)); CREATE TABLE log (id int, at date)`)
	for _, c := range []struct{ table, key, want string }{
		{"log", "1", "log has no unique key"},
		{"tag", "1", "for tag, give tenant=…,kind=…"},
		{"tag", "tenant=1,kind=c", `invalid input value for enum kind: "c"`},
		{"tag", "tenant=1,name=c", `tag has no column "name"`},
	} {
		p := policy.Policy{
			Name: "p", Table: c.table, Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		}
		e, err := insight.NewExplainer(t.Context(), cleanup.Config{
			Pool: db.Pool, Now: now, NoCampaign: true, Pipeline: []rules.Task{p.Task()},
		}, rules.Holds{}, c.table)
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Row(t.Context(), columnsOf(c.key), func() error { return nil })
		checkError(t, err, c.want)
	}
}

// The conclusion about a row that no rule deletes says that one changes it, and what keeps it from being deleted.
func TestExplainRowThatIsChanged(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE person (id int PRIMARY KEY, at timestamptz, name text);
		CREATE TABLE payment (person int REFERENCES person);
		INSERT INTO person VALUES (1, '2020-01-01', 'Ann'), (2, '2026-02-01', 'Joe'), (3, '2019-01-01', 'Eve');
		INSERT INTO payment VALUES (3)`)
	none := "none"
	p := policy.Policy{
		Name: "p", Table: "person", Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		Assign: []policy.Assign{{Column: "name", Value: &none}},
	}
	oldest := policy.Policy{
		Name: "oldest", Table: "person", Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		Filters: []policy.Filter{{Column: "name", Op: "EQUAL", Values: []string{"Eve"}}},
	}
	e, err := insight.NewExplainer(t.Context(), cleanup.Config{
		Pool: db.Pool, Now: now, NoCampaign: true, Pipeline: []rules.Task{oldest.Task(), p.Task()},
	}, rules.Holds{}, "person")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"1": "no rule deletes it, but policy/p changes it in the next run",
		"2": "no rule deletes it, but policy/p changes it from 2026-03-03T00:00:00Z",
		"3": "policy/oldest does not delete it, since foreign keys of rows of public.payment refer to it, but policy/p " +
			"changes it in the next run",
	} {
		x, err := e.Row(t.Context(), columnsOf(key), func() error { return nil })
		if err != nil || x.Verdict != insight.Kept || x.Why != want {
			t.Errorf("%s: %s, %v, want %s", key, x.Why, err, want)
		}
	}
	held := heldRows("public.person", [3]string{"id", "int4", "1"})
	held.Rows[0].OID = uint32(db.Int("SELECT 'person'::regclass::oid::bigint"))
	if e, err = insight.NewExplainer(t.Context(), cleanup.Config{
		Pool: db.Pool, Now: now, NoCampaign: true, Pipeline: []rules.Task{p.Task()},
	}, held, "person"); err != nil {
		t.Fatal(err)
	}
	e.Holds = []rules.Hold{{ID: "h", Reason: "case 7", Holds: held}}
	x, err := e.Row(t.Context(), columnsOf("1"), func() error { return nil })
	const want = "no rule deletes it, and policy/p does not change it, since it, or a row that belongs to it, is on hold"
	if err != nil || !strings.HasPrefix(x.Why, want) || !strings.Contains(x.Why, "case 7") {
		t.Errorf("on hold: %s, %v, want %s", x.Why, err, want)
	}
}

// A hold is the reason only for rows that it is known to keep, and not where the keys are not followed to their end.
func TestExplainRowBehindTooManyKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE person (id int PRIMARY KEY, at date, by int REFERENCES person ON DELETE CASCADE);
		INSERT INTO person VALUES (1, '2020-01-01', NULL), (2, '2020-01-01', 1), (3, '2020-01-01', 2),
			(9, '2020-01-01', NULL)`)
	p := policy.Policy{
		Name: "p", Table: "person", Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
	}
	holds := heldRows("public.person", [3]string{"id", "int4", "9"})
	holds.Rows[0].OID = uint32(db.Int("SELECT 'person'::regclass::oid::bigint"))
	e, err := insight.NewExplainer(t.Context(), cleanup.Config{
		Pool: db.Pool, Now: now, NoCampaign: true, Pipeline: []rules.Task{p.Task()},
	}, holds, "person")
	if err != nil {
		t.Fatal(err)
	}
	e.Holds = []rules.Hold{{ID: "h", Reason: "case 7", Holds: holds}}
	const tooDeep = "while there are holds, rows of public.person are retained if the chain of rows that refer to them " +
		"is too long to follow, through public.person"
	for key, want := range map[string]string{
		"1": tooDeep,
		"9": "it, or a row that belongs to it, is on hold: hold h (case 7)",
	} {
		x, err := e.Row(t.Context(), columnsOf(key), func() error { return nil })
		if err != nil || x.Verdict != insight.Kept || x.Why != want {
			t.Errorf("%s: %s, %v, want %s", key, x.Why, err, want)
		}
	}
}
