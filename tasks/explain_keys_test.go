package tasks_test

import (
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
		CREATE TABLE parcel (shipment uuid REFERENCES shipment ON DELETE CASCADE)`)
	for _, c := range []struct {
		table string
		key   []insight.KeyColumn
	}{
		{"shipment", []insight.KeyColumn{{Value: "255f2bf1-7d24-4f59-93c7-26cd4eb0c8d5"}}},
		{"shipment", []insight.KeyColumn{{Column: "ID", Value: "255F2BF1-7D24-4F59-93C7-26CD4EB0C8D5"}}},
		{"route", []insight.KeyColumn{{Column: "vehicle", Value: "3"}, {Column: "day", Value: "2025-07-20"}}},
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
