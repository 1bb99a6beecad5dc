package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func envOf(t *testing.T, db *pgtest.DB) rules.Env {
	t.Helper()
	catalog, err := campaign.LoadCatalog(t.Context(), db, campaign.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	options, err := campaign.ReadOptions(t.Context(), db, catalog)
	if err != nil {
		t.Fatal(err)
	}
	return rules.Env{Catalog: catalog, Options: options, Now: now}
}

// Each part of a rule compiles to SQL with parameters, and to a description with its numbers. If a column, a table or a
// usable option is missing, there is a note and no job.
func TestRules(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO XtkOption (iOptionId, sName, iDataType, iLongValue) VALUES (1, 'NmsCleanup_VisitorPurgeDelay', " +
			"3, 60)",
	)
	env := envOf(t, db)
	cutoff := func(days int) time.Time { return now.Add(-time.Duration(days) * campaign.Day) }
	for name, c := range map[string]struct {
		table string
		rule  rules.Rule
		sql   string // without the table's own key
		args  []any
		text  string
		note  string
	}{
		"a number": {
			"NmsSubscription",
			rules.Rule{rules.IsNot("iDeleteStatus", 0)},
			"r.iDeleteStatus <> 0",
			nil,
			"iDeleteStatus is not 0",
			"",
		},
		"one of some": {
			"NmsAddress",
			rules.Rule{rules.Is("iType", 41, 42)},
			"r.iType IN (41, 42)",
			nil,
			"iType is 41 or 42",
			"",
		},
		"none of some": {
			"NmsDelivery",
			rules.Rule{rules.IsNot("iState", 0, 85)},
			"r.iState NOT IN (0, 85)",
			nil,
			"iState is not 0 or 85",
			"",
		},
		"a range": {
			"NmsDelivery",
			rules.Rule{rules.AtLeast("iState", 51), rules.Below("iState", 85)},
			"r.iState >= 51 AND r.iState < 85",
			nil,
			"iState is at least 51 and iState is below 85",
			"",
		},
		"known": {
			"NmsDelivery",
			rules.Rule{rules.IsKnown("iNeedMirrorPage")},
			"r.iNeedMirrorPage IS NOT NULL",
			nil,
			"iNeedMirrorPage is known",
			"",
		},
		"past": {
			"XtkSessionInfo",
			rules.Rule{rules.Past("tsExpiration")},
			"r.tsExpiration < $1::timestamptz",
			[]any{now},
			"tsExpiration before 2026-03-01 12:00 UTC",
			"",
		},
		"past by nothing": {
			"XtkSessionInfo",
			rules.Rule{rules.Past("tsExpiration").By(0)},
			"r.tsExpiration < $1::timestamptz",
			[]any{now},
			"tsExpiration before 2026-03-01 12:00 UTC",
			"",
		},
		"past by hours": {
			"XtkSessionInfo",
			rules.Rule{rules.Past("tsExpiration").ByHours(48)},
			"r.tsExpiration < $1::timestamptz",
			[]any{cutoff(2)},
			"tsExpiration older than 48 hours (2026-02-27 12:00 UTC)",
			"",
		},
		"past by no hours": {
			"XtkSessionInfo",
			rules.Rule{rules.Past("tsExpiration").ByHours(0)},
			"r.tsExpiration < $1::timestamptz",
			[]any{now},
			"tsExpiration before 2026-03-01 12:00 UTC",
			"",
		},
		"reached": {
			"NmsGroup",
			rules.Rule{rules.Reached("tsExpirationDate")},
			"r.tsExpirationDate <= $1::timestamptz",
			[]any{now},
			"tsExpirationDate not after 2026-03-01 12:00 UTC",
			"",
		},
		"younger": {
			"NmsDelivery",
			rules.Rule{rules.Younger("tsLastModified", 36*time.Hour)},
			"r.tsLastModified > $1::timestamptz",
			[]any{now.Add(-36 * time.Hour)},
			"tsLastModified younger than 36h0m0s (2026-02-28 00:00 UTC)",
			"",
		},
		"older": {
			"XtkAudit",
			rules.Rule{rules.Older("tsChanged", campaign.AuditTrailPurge)},
			"r.tsChanged < $1::timestamptz",
			[]any{cutoff(180)},
			"tsChanged older than 180 days (2025-09-02 12:00 UTC)",
			"",
		},
		"older, and more": {
			"NmsAddress",
			rules.Rule{rules.Older("tsLastModified", campaign.AppSubscriptionPurge).By(5 * campaign.Day)},
			"r.tsLastModified < $1::timestamptz",
			[]any{cutoff(185)},
			"tsLastModified older than 185 days (2025-08-28 12:00 UTC)",
			"",
		},
		"one of two dates": {
			"NmsDelivery",
			rules.Rule{rules.Older("tsDelete", campaign.RecycledDeliveryPurge).Or("tsLastModified")},
			"COALESCE(r.tsDelete, r.tsLastModified) < $1::timestamptz",
			[]any{cutoff(7)},
			"tsDelete (or tsLastModified) older than 7 days (2026-02-22 12:00 UTC)",
			"",
		},
		"one date is there": {
			"XtkAudit",
			rules.Rule{rules.Older("tsNone", campaign.AuditTrailPurge).Or("tsChanged")},
			"r.tsChanged < $1::timestamptz",
			[]any{cutoff(180)},
			"tsNone (or tsChanged) older than 180 days (2025-09-02 12:00 UTC)",
			"",
		},
		"since never": {
			"NmsAddress",
			rules.Rule{rules.Since("tsLastModified", campaign.LastCleanup)},
			"r.tsLastModified >= COALESCE($1::timestamptz, '-infinity')",
			[]any{(*time.Time)(nil)},
			"tsLastModified is known",
			"",
		},
		"an orphan": {
			"XtkReject",
			rules.Rule{rules.Orphan{Column: "iJobId", Parent: "XtkJob", Key: "iJobId"}},
			`r.iJobId <> 0 AND NOT EXISTS (SELECT FROM "public"."xtkjob" AS p WHERE p.iJobId = r.iJobId)
				AND EXISTS (SELECT 1 FROM "public"."xtkjob" AS p)`,
			nil,
			"its XtkJob (iJobId) is gone",
			"",
		},
		"an orphan after": {
			"NmsMxDomain",
			rules.Rule{rules.Orphan{Column: "iMXIP", Parent: "NmsEmailErrorStat", Key: "iMXIP", EmptyAfter: "x"}},
			`r.iMXIP <> 0 AND (r.iMXIP = ANY (SELECT DISTINCT p.iMXIP
				FROM "public"."nmsemailerrorstat" AS p)) IS NOT TRUE AND ($1::boolean OR EXISTS (SELECT 1
				FROM "public"."nmsemailerrorstat" AS p))`,
			[]any{rules.SucceededTask("x")},
			"its NmsEmailErrorStat (iMXIP) is gone", "",
		},
		"a link": {
			"NmsDeliveryPart",
			rules.Rule{rules.Linked{
				Column: "iDeliveryId",
				To:     "NmsDelivery",
				Key:    "iDeliveryId",
				That:   rules.Rule{rules.Is("iState", 85, 95)},
			}},
			`EXISTS (SELECT FROM "public"."nmsdelivery" AS p WHERE p.iDeliveryId = r.iDeliveryId
				AND p.iState IN (85, 95))`,
			nil,
			"its NmsDelivery (iDeliveryId) has iState is 85 or 95",
			"",
		},
		"plain SQL": {
			"XtkWorkflowLog",
			rules.Rule{rules.SQL{
				Text:  "EXISTS (SELECT FROM {w} WHERE r.tsLog < {now})",
				Reads: []rules.Source{{Alias: "w", Table: "XtkWorkflow"}, {Columns: []string{"tsLog"}}},
				Words: "why",
			}},
			`EXISTS (SELECT FROM "public"."xtkworkflow" AS w WHERE r.tsLog < $1::timestamptz)`,
			[]any{now},
			"why", "",
		},

		"no column": {
			table: "XtkAudit",
			rule:  rules.Rule{rules.Is("iNone", 1)},
			note:  "xtkaudit has no column iNone: skipped",
		},
		"no date": {
			table: "XtkAudit",
			rule:  rules.Rule{rules.Past("tsNone").Or("tsNeither")},
			note:  "xtkaudit has no column tsNone: skipped",
		},
		"a second part": {
			table: "XtkAudit",
			rule:  rules.Rule{rules.Past("tsChanged"), rules.IsKnown("iNone")},
			note:  "xtkaudit has no column iNone: skipped",
		},
		"no usable delay": {
			table: "NmsVisitor",
			rule:  rules.Rule{rules.Older("tsLastModified", campaign.VisitorPurge)},
			note: "nmsvisitor is not cleaned: option NmsCleanup_VisitorPurgeDelay is stored as 60 seconds, less than " +
				"a day: not used",
		},
		"no parent": {
			table: "XtkReject",
			rule: rules.Rule{rules.Orphan{
				Column: "iJobId",
				Parent: "XtkNone",
				Key:    "iJobId",
			}},
			note: "orphans of XtkNone are not deleted, because it is missing",
		},
		"no parent's key": {
			table: "XtkReject",
			rule: rules.Rule{rules.Orphan{
				Column: "iJobId",
				Parent: "XtkJob",
				Key:    "iNone",
			}},
			note: "orphans of XtkJob are not deleted, because it has no column iNone",
		},
		"no linked table": {
			table: "XtkReject",
			rule: rules.Rule{rules.Linked{
				Column: "iJobId",
				To:     "XtkNone",
				Key:    "iId",
			}},
			note: "table XtkNone, on which rows of xtkreject depend, is missing: skipped",
		},
		"no read table": {
			table: "XtkReject",
			rule: rules.Rule{rules.SQL{Reads: []rules.Source{{
				Alias: "n",
				Table: "XtkNone",
			}}}},
			note: "table XtkNone, on which rows of xtkreject depend, is missing: skipped",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := rules.Step{On: rules.Table(c.table), Rules: rules.Rules{c.rule}}
			if c.note != "" {
				p := compile(t, rules.Task{Steps: []rules.Step{step}}, env)
				if len(p.Jobs) != 0 {
					t.Errorf("%d jobs", len(p.Jobs))
				}
				if len(p.Notes) != 1 || p.Notes[0].Text != c.note {
					t.Errorf("notes: %v", p.Notes)
				}
				return
			}
			j := compileStep(t, nil, step, env)
			oneLine := func(sql string) string { return strings.Join(strings.Fields(sql), " ") }
			sql, args := j.Where.Build()
			if !strings.HasPrefix(oneLine(sql), "(("+oneLine(c.sql)+"))") {
				t.Errorf("SQL: %s", sql)
			}
			if !slices.Equal(args, c.args) {
				t.Errorf("parameters: %v", args)
			}
			if j.Rule != c.text {
				t.Errorf("description: %s", j.Rule)
			}
		})
	}
}

// A plan names the missing rights, even if it is compiled again. A dry run only needs to read.
func TestRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("REVOKE ALL ON XtkReject, XtkJob FROM neolane")
	env := envOf(t, db)
	task := rules.Task{Steps: []rules.Step{{
		On: rules.Table("XtkReject"),
		Rules: rules.Rules{
			{rules.Orphan{Column: "iJobId", Parent: "XtkJob", Key: "iJobId"}},
			{rules.Past("tsLog")},
		},
	}}}
	const parent = `GRANT SELECT ON "public"."xtkjob" TO "neolane"`
	for dry, want := range map[bool][]string{
		false: {parent, `GRANT SELECT, DELETE ON "public"."xtkreject" TO "neolane"`},
		true:  {parent, `GRANT SELECT ON "public"."xtkreject" TO "neolane"`},
	} {
		env.DryRun = dry
		for range 2 {
			p := compile(t, task, env)
			if !slices.Equal(p.Rights, want) {
				t.Errorf("dry run %t: %q, not %q", dry, p.Rights, want)
			}
			later := `GRANT DELETE ON "public"."xtkreject" TO "neolane"`
			if dry != slices.Equal(p.RunRights, []string{later}) || dry != (p.RunRights != nil) {
				t.Errorf("dry run %t: %q for the run", dry, p.RunRights)
			}
		}
	}
}
