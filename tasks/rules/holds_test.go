package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// The conditions of a job cover every way in which its rows can be on hold: by a column, a message, a row with the same
// id, a foreign key, or as a whole.
func TestHoldConditions(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Superuser(
		`CREATE TABLE children (irecipientid int, ivisitorid int REFERENCES nmsvisitor (ivisitorid) ON DELETE ` +
			`CASCADE)`,
	)
	db.Superuser("ALTER TABLE children OWNER TO neolane")
	env := envOf(t, db)
	env.Pipeline = []rules.Task{{
		ParentRule: deletedDeliveries,
		Steps: []rules.Step{
			{On: rules.Table("NmsCouponValue"), Message: "iMessageId"},
			{On: rules.Table("NmsTrackingLogRcp"), Link: "iDeliveryId", Paired: &rules.Paired{
				Table: "NmsWebTrackingLog", Key: "iWebTrackingLogId", ID: "iTrackingLogId",
			}},
		},
	}}
	const (
		ofDeliveries = "l.iDeliveryId IN (SELECT unnest($1::bigint[]))"
		withoutIndex = `EXISTS (SELECT FROM "public"."children" AS k1 WHERE r.ivisitorid OPERATOR(pg_catalog.=) ` +
			"k1.ivisitorid AND (k1.iRecipientId IN (SELECT unnest($1::bigint[]))))"
	)
	for name, c := range map[string]struct {
		table                 string
		holds                 rules.Holds
		where, column, lookup string
	}{
		"the whole table": {
			"NmsVisitor", rules.Holds{Tables: []rules.HeldTable{{Schema: "public", Name: "nmsvisitor"}}}, "true", "", "",
		},
		"everything": {"NmsVisitor", rules.Holds{Everything: true}, "true", "", ""},
		"a column": {
			"NmsBroadLogRcp",
			rules.Holds{Recipients: []int64{1}},
			"r.iRecipientId IN (SELECT unnest($1::bigint[]))", "iRecipientId", "",
		},
		"a column of a table that does not belong to deliveries": {
			"NmsBroadLogRcp",
			rules.Holds{Deliveries: []int64{1}},
			"r.iDeliveryId IN (SELECT unnest($1::bigint[]))", "iDeliveryId", "",
		},
		"a message": {
			"NmsCouponValue",
			rules.Holds{Deliveries: []int64{1}},
			`r.iMessageId IN (SELECT l.iBroadLogId FROM "public"."nmsbroadlogmid" AS l WHERE ` + ofDeliveries + ")",
			"iMessageId",
			`EXISTS (SELECT FROM "public"."nmsbroadlogmid" AS l WHERE l.iBroadLogId = r.iMessageId AND (` + ofDeliveries +
				") OFFSET 0)",
		},
		"a row with the same id": {
			"NmsWebTrackingLog",
			rules.Holds{Deliveries: []int64{1}},
			`r.iWebTrackingLogId IN (SELECT l.iTrackingLogId FROM "public"."nmstrackinglogrcp" AS l WHERE ` + ofDeliveries +
				")",
			"iWebTrackingLogId",
			`EXISTS (SELECT FROM "public"."nmstrackinglogrcp" AS l WHERE l.iTrackingLogId = r.iWebTrackingLogId AND (` +
				ofDeliveries + ") OFFSET 0)",
		},
		"a foreign key": {
			"NmsVisitor",
			rules.Holds{Recipients: []int64{1}},
			withoutIndex,
			"ivisitorid",
			withoutIndex,
		},
	} {
		env.Holds = c.holds
		env.Holds.Names = []string{"hold"}
		found := compileStep(t, nil, rules.Step{On: rules.Table(c.table)}, env).OnHold
		i := slices.IndexFunc(found, func(h rules.HoldCondition) bool { return sqlOf(h.Condition) == c.where })
		if i < 0 {
			t.Errorf("%s: no condition %s in %+v", name, c.where, found)
			continue
		}
		if found[i].Column != c.column {
			t.Errorf("%s: column %q, not %q", name, found[i].Column, c.column)
		}
		if lookup := sqlOf(found[i].Lookup); lookup != c.lookup {
			t.Errorf("%s: the lookup is %s, want %s", name, lookup, c.lookup)
		}
	}
}

func sqlOf(e sqlexpr.Expr) string {
	sql, _ := e.Build()
	return sql
}

// A job of a table without rows on hold has no conditions.
func TestNoHoldConditions(t *testing.T) {
	t.Parallel()
	env := envOf(t, pgtest.Campaign(t))
	env.Holds = rules.Holds{Names: []string{"hold"}, Deliveries: []int64{1}}
	if found := compileStep(t, nil, rules.Step{On: rules.Table("XtkReject")}, env).OnHold; found != nil {
		t.Errorf("%+v", found)
	}
}

// Rows are retained if the role cannot see which of them foreign keys connect with rows on hold.
func TestHiddenRowsOnHold(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Superuser(
		`CREATE TABLE children (irecipientid int, ivisitorid int REFERENCES nmsvisitor (ivisitorid) ON DELETE ` +
			`CASCADE)`,
	)
	env := envOf(t, db)
	env.Holds = rules.Holds{Names: []string{"hold"}, Recipients: []int64{1}}
	p := compile(t, rules.Task{Steps: []rules.Step{{On: rules.Table("NmsVisitor")}}}, env)
	if !slices.ContainsFunc(p.Jobs[0].OnHold, func(h rules.HoldCondition) bool { return sqlOf(h.Condition) == "true" }) {
		t.Errorf("no condition retains all rows: %+v", p.Jobs[0].OnHold)
	}
	if !slices.ContainsFunc(p.Notes, func(n message.Message) bool {
		return n.Code == message.HoldHidden.Code && strings.Contains(n.Params["statement"], "GRANT SELECT ON")
	}) {
		t.Errorf("no note names the missing right: %v", p.Notes)
	}
}

// A work table is on hold by its name, its owner, a list in its name, or one of its partitions.
func TestWorkTablesOnHold(t *testing.T) {
	t.Parallel()
	table := campaign.WorkTable{Schema: "public", Name: "wkf7_grp9", ID: 7, Partitions: []string{"wkf7_p1"}}
	for name, c := range map[string]struct {
		holds rules.Holds
		want  bool
	}{
		"its name":          {rules.Holds{Tables: []rules.HeldTable{{Schema: "public", Name: "wkf7_grp9"}}}, true},
		"its partition":     {rules.Holds{Tables: []rules.HeldTable{{Schema: "public", Name: "wkf7_p1"}}}, true},
		"its owner":         {rules.Holds{Workflows: []int64{7}}, true},
		"its list":          {rules.Holds{Lists: []int64{9}}, true},
		"another owner":     {rules.Holds{Workflows: []int64{9}}, false},
		"an owner's number": {rules.Holds{Deliveries: []int64{7}}, false},
	} {
		if got := c.holds.WorkTable(table, "XtkWorkflow"); got != c.want {
			t.Errorf("%s: %t, not %t", name, got, c.want)
		}
	}
}
