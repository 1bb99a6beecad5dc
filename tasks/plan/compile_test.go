package plan_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// deletedDeliveries is a parent set whose rule depends on no date.
var deletedDeliveries = &plan.ParentSet{
	Parent: "NmsDelivery",
	Key:    "iDeliveryId",
	Rules:  plan.Rules{{plan.IsNot("iDeleteStatus", 0)}},
}

func compile(t *testing.T, task plan.Task, env plan.Env) *plan.Plan {
	t.Helper()
	p, err := plan.Compile(task, env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func compileStep(t *testing.T, parents *plan.ParentSet, step plan.Step, env plan.Env) plan.Job {
	t.Helper()
	p := compile(t, plan.Task{ParentSet: parents, Steps: []plan.Step{step}}, env)
	if len(p.Jobs) != 1 {
		t.Fatalf("%d jobs: %v", len(p.Jobs), p.Notes)
	}
	return p.Jobs[0]
}

// A statement on dependent rows checks the rules of the parents again. A dry run has just read them.
func TestDependentRows(t *testing.T) {
	t.Parallel()
	env := envOf(t, pgtest.Campaign(t))
	for name, c := range map[string]struct {
		step  plan.Step
		where string
		dry   string
		ids   string
	}{
		"parents": {
			step: plan.Step{On: plan.Table("NmsDelivery"), OfParents: true},
			where: "true AND ((r.iDeleteStatus <> 0)) AND r.iDeliveryId <> 0" +
				" AND r.iDeliveryId IN (SELECT unnest($1::bigint[]))",
			dry: "true AND r.iDeliveryId <> 0 AND r.iDeliveryId IN (SELECT unnest($1::bigint[]))",
			ids: "SELECT r.iDeliveryId",
		},
		"linked rows": {
			step: plan.Step{On: plan.Table("NmsTrackingUrl"), Link: "iDeliveryId"},
			where: `true AND r.iDeliveryId <> 0 AND r.iDeliveryId IN (SELECT unnest($1::bigint[])) AND EXISTS (SELECT FROM ` +
				`(SELECT r.iDeliveryId AS id) AS child, "public"."nmsdelivery" AS r WHERE r.iDeliveryId = child.id AND ` +
				`((r.iDeleteStatus <> 0)) OFFSET 0)`,
			dry: "true AND r.iDeliveryId <> 0 AND r.iDeliveryId IN (SELECT unnest($1::bigint[]))",
			ids: "SELECT r.iDeliveryId",
		},
		"rows of messages": {
			step: plan.Step{On: plan.Table("NmsCouponValue"), Message: "iMessageId"},
			where: `true AND r.iMessageId <> 0 AND (EXISTS (SELECT FROM "public"."nmsbroadlogmid" AS l WHERE ` +
				`l.iBroadLogId = r.iMessageId AND (l.iDeliveryId <> 0 AND l.iDeliveryId IN (SELECT unnest($1::bigint[])) ` +
				`AND EXISTS (SELECT FROM (SELECT l.iDeliveryId AS id) AS child, "public"."nmsdelivery" AS r WHERE ` +
				`r.iDeliveryId = child.id AND ((r.iDeleteStatus <> 0)) OFFSET 0)) IS TRUE OFFSET 0))`,
			dry: `true AND r.iMessageId <> 0 AND (EXISTS (SELECT FROM "public"."nmsbroadlogmid" AS l WHERE ` +
				`l.iBroadLogId = r.iMessageId AND (l.iDeliveryId <> 0 AND l.iDeliveryId IN (SELECT unnest($1::bigint[]))) ` +
				`IS TRUE OFFSET 0))`,
			ids: `SELECT l.iDeliveryId FROM "public"."nmsbroadlogmid" AS l WHERE l.iBroadLogId = r.iMessageId`,
		},
	} {
		for dry, where := range map[bool]string{false: c.where, true: c.dry} {
			env.DryRun = dry
			j := compileStep(t, deletedDeliveries, c.step, env)
			sql, args := j.Where.Build()
			if got, _, _ := strings.Cut(sql, ` AND r."`); got != where { // without the zero record
				t.Errorf("%s, dry run %t: condition %s, not %s", name, dry, got, where)
			}
			if want := []any{plan.ParentIDs{}}; !slices.Equal(args, want) {
				t.Errorf("%s, dry run %t: arguments %v, not %v", name, dry, args, want)
			}
			if j.ParentIDs != c.ids {
				t.Errorf("%s, dry run %t: parents %s, not %s", name, dry, j.ParentIDs, c.ids)
			}
		}
	}
}

// The condition of a step ends with the exclusion of the zero record, in tables that have a key.
func TestZeroRecord(t *testing.T) {
	t.Parallel()
	env := envOf(t, pgtest.Campaign(t))
	for table, where := range map[string]string{
		"NmsVisitor":      `true AND r."ivisitorid" IS DISTINCT FROM 0`,
		"NmsSubscription": `true`, // two columns are its key
	} {
		if got, _ := compileStep(t, nil, plan.Step{On: plan.Table(table)}, env).Where.Build(); got != where {
			t.Errorf("%s: %s, not %s", table, got, where)
		}
	}
}

// Each kind of work needs its own rights, and a dry run only needs to read.
func TestRightsByKind(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public FROM neolane")
	env := envOf(t, db)
	for name, c := range map[string]struct {
		task plan.Task
		want []string
	}{
		"delete": {
			plan.Task{Steps: []plan.Step{{On: plan.Table("NmsVisitor")}}},
			[]string{`GRANT DELETE ON "public"."nmsvisitor" TO "neolane"`},
		},
		"update": {
			plan.Task{Steps: []plan.Step{{
				On:     plan.Table("NmsVisitor"),
				Update: []plan.Assignment{{Column: "iOrigin", Value: plan.Number(1)}},
			}}},
			[]string{`GRANT UPDATE ON "public"."nmsvisitor" TO "neolane"`},
		},
		"lists with tables": {
			plan.Task{Steps: []plan.Step{{
				On:     plan.Table("NmsGroup"),
				Tables: &plan.OwnTables{Prefix: "grp", If: plan.Above("iType", 0)},
			}}},
			[]string{`GRANT DELETE, UPDATE ON "public"."nmsgroup" TO "neolane"`},
		},
		"paired rows": {
			plan.Task{Steps: []plan.Step{{
				On:     plan.Table("NmsTrackingLogRcp"),
				Paired: &plan.Paired{Table: "NmsWebTrackingLog", Key: "iWebTrackingLogId", ID: "iTrackingLogId"},
			}}},
			[]string{
				`GRANT DELETE ON "public"."nmstrackinglogrcp" TO "neolane"`,
				`GRANT DELETE ON "public"."nmswebtrackinglog" TO "neolane"`,
			},
		},
		"roll up": {
			plan.Task{RollUp: &plan.RollUp{Table: "NmsEmailErrorStat"}},
			[]string{
				`GRANT INSERT, DELETE ON "public"."nmsemailerrorstat" TO "neolane"`,
				`GRANT INSERT ON "public"."xtkoption" TO "neolane"`,
			},
		},
		"advance an option": {
			plan.Task{Advances: campaign.LastCleanup},
			[]string{`GRANT INSERT ON "public"."xtkoption" TO "neolane"`},
		},
	} {
		env.DryRun = false
		if p := compile(t, c.task, env); !slices.Equal(p.Rights, c.want) {
			t.Errorf("%s: %q, not %q", name, p.Rights, c.want)
		}
		env.DryRun = true
		if p := compile(t, c.task, env); len(p.Rights) != 0 {
			t.Errorf("%s in a dry run: %q", name, p.Rights)
		}
	}
}

// A log is retained for a retained delivery if a row refers to its message. A dry run ignores rows that it would
// delete.
func TestExcept(t *testing.T) {
	t.Parallel()
	env := envOf(t, pgtest.Campaign(t))
	deliveries := plan.Task{
		Name:      "deliveries",
		ParentSet: deletedDeliveries,
		Steps:     []plan.Step{{On: plan.Table("NmsCouponValue"), Message: "iMessageId"}},
	}
	step := plan.Step{On: plan.DeliveryLogs, NeededBy: &deliveries}
	const where = `r.iDeliveryId = ANY ($1::bigint[]) AND (EXISTS (SELECT FROM "public"."nmscouponvalue" AS m WHERE ` +
		`m.iMessageId = r.iBroadLogId AND `
	for dry, want := range map[bool]struct {
		where string
		args  []any
	}{
		false: {where + "true))", []any{plan.ParentIDs{}}},
		true: {
			where + `(m.iMessageId IN (SELECT l.iBroadLogId FROM "public"."nmsbroadlogmid" AS l WHERE l.iDeliveryId = ` +
				`ANY ($2::bigint[]))) IS NOT TRUE))`,
			[]any{plan.ParentIDs{}, plan.DryRunParents("deliveries")},
		},
	} {
		env.DryRun = dry
		e := compileStep(t, nil, step, env).Except
		if e == nil {
			t.Fatalf("dry run %t: no rows are retained", dry)
		}
		sql, args := e.Condition.Build()
		if sql != want.where {
			t.Errorf("dry run %t: condition %s, not %s", dry, sql, want.where)
		}
		if !reflect.DeepEqual(args, want.args) {
			t.Errorf("dry run %t: arguments %v, not %v", dry, args, want.args)
		}
	}
}
