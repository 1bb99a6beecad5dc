package rules_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// deletedDeliveries are parents whose rule depends on no date.
var deletedDeliveries = &rules.ParentRule{
	Parent: "NmsDelivery",
	Key:    "iDeliveryId",
	Rules:  rules.Rules{{rules.IsNot("iDeleteStatus", 0)}},
}

func compile(t *testing.T, task rules.Task, env rules.Env) *rules.Plan {
	t.Helper()
	p, err := rules.Compile(task, env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func compileStep(t *testing.T, parents *rules.ParentRule, step rules.Step, env rules.Env) rules.Job {
	t.Helper()
	p := compile(t, rules.Task{ParentRule: parents, Steps: []rules.Step{step}}, env)
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
		step  rules.Step
		where string
		dry   string
		ids   string
	}{
		"parents": {
			step: rules.Step{On: rules.Table("NmsDelivery"), OfParents: true},
			where: "true AND ((r.iDeleteStatus <> 0)) AND r.iDeliveryId <> 0" +
				" AND r.iDeliveryId IN (SELECT unnest($1::bigint[]))",
			dry: "true AND r.iDeliveryId <> 0 AND r.iDeliveryId IN (SELECT unnest($1::bigint[]))",
			ids: "SELECT r.iDeliveryId",
		},
		"linked rows": {
			step: rules.Step{On: rules.Table("NmsTrackingUrl"), Link: "iDeliveryId"},
			where: `true AND r.iDeliveryId <> 0 AND r.iDeliveryId IN (SELECT unnest($1::bigint[])) AND EXISTS (SELECT FROM ` +
				`(SELECT r.iDeliveryId AS id) AS child, "public"."nmsdelivery" AS r WHERE r.iDeliveryId = child.id AND ` +
				`((r.iDeleteStatus <> 0)) OFFSET 0)`,
			dry: "true AND r.iDeliveryId <> 0 AND r.iDeliveryId IN (SELECT unnest($1::bigint[]))",
			ids: "SELECT r.iDeliveryId",
		},
		"rows of messages": {
			step: rules.Step{On: rules.Table("NmsCouponValue"), Message: "iMessageId"},
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
			if want := []any{rules.ParentIDs{}}; !slices.Equal(args, want) {
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
		if got, _ := compileStep(t, nil, rules.Step{On: rules.Table(table)}, env).Where.Build(); got != where {
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
		task rules.Task
		want []string
	}{
		"delete": {
			rules.Task{Steps: []rules.Step{{On: rules.Table("NmsVisitor")}}},
			[]string{`GRANT DELETE ON "public"."nmsvisitor" TO "neolane"`},
		},
		"update": {
			rules.Task{Steps: []rules.Step{{
				On:     rules.Table("NmsVisitor"),
				Update: []rules.Assignment{{Column: "iOrigin", Value: rules.Number(1)}},
			}}},
			[]string{`GRANT UPDATE ON "public"."nmsvisitor" TO "neolane"`},
		},
		"lists with tables": {
			rules.Task{Steps: []rules.Step{{
				On:     rules.Table("NmsGroup"),
				Tables: &rules.OwnTables{Prefix: "grp", If: rules.Above("iType", 0)},
			}}},
			[]string{`GRANT DELETE, UPDATE ON "public"."nmsgroup" TO "neolane"`},
		},
		"paired rows": {
			rules.Task{Steps: []rules.Step{{
				On:     rules.Table("NmsTrackingLogRcp"),
				Paired: &rules.Paired{Table: "NmsWebTrackingLog", Key: "iWebTrackingLogId", ID: "iTrackingLogId"},
			}}},
			[]string{
				`GRANT DELETE ON "public"."nmstrackinglogrcp" TO "neolane"`,
				`GRANT DELETE ON "public"."nmswebtrackinglog" TO "neolane"`,
			},
		},
		"roll up": {
			rules.Task{RollUp: &rules.RollUp{Table: "NmsEmailErrorStat"}},
			[]string{
				`GRANT INSERT, DELETE ON "public"."nmsemailerrorstat" TO "neolane"`,
				`GRANT INSERT ON "public"."xtkoption" TO "neolane"`,
			},
		},
		"advance an option": {
			rules.Task{Advances: campaign.LastCleanup},
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
	deliveries := rules.Task{
		Name:       "deliveries",
		ParentRule: deletedDeliveries,
		Steps:      []rules.Step{{On: rules.Table("NmsCouponValue"), Message: "iMessageId"}},
	}
	step := rules.Step{On: rules.DeliveryLogs, NeededBy: &deliveries}
	const where = `r.iDeliveryId = ANY ($1::bigint[]) AND (EXISTS (SELECT FROM "public"."nmscouponvalue" AS m WHERE ` +
		`m.iMessageId = r.iBroadLogId AND `
	for dry, want := range map[bool]struct {
		where string
		args  []any
	}{
		false: {where + "true))", []any{rules.ParentIDs{}}},
		true: {
			where + `(m.iMessageId IN (SELECT l.iBroadLogId FROM "public"."nmsbroadlogmid" AS l WHERE l.iDeliveryId = ` +
				`ANY ($2::bigint[]))) IS NOT TRUE))`,
			[]any{rules.ParentIDs{}, rules.DryRunParents("deliveries")},
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
