package dashboard

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const alertsFile = "../../deploy/prometheus/alerts.yaml"

func engine(t *testing.T) *promql.Engine {
	t.Helper()
	e := promql.NewEngine(
		promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.LegacyValidation, parser.NewParser(parser.Options{}),
		slog.New(slog.DiscardHandler))
	if errs != nil {
		t.Fatal(errs)
	}
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r
		}
	}
	return all
}

// firing returns the alerts of a rule, with their descriptions, that fire after some time if it is evaluated every
// minute.
func firing(t *testing.T, r rulefmt.Rule, series string, after time.Duration) (found []*rules.Alert) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true,
		slog.New(slog.DiscardHandler))
	query := rules.EngineQueryFunc(engine(t),
		promqltest.LoadedStorage(t, "load 1m\n\t"+strings.ReplaceAll(series, "\n", "\n\t")))
	start := time.Unix(0, 0)
	for at := max(after-2*time.Hour, 0); at <= after; at += time.Minute {
		if _, err := rule.Eval(t.Context(), 0, start.Add(at), query, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range rule.ActiveAlerts() {
		if a.State == rules.StateFiring {
			found = append(found, a)
		}
	}
	return found
}

// Each alert fires when it should, once however many replicas there are, and not when it should not. Series are those
// of promtool's unit tests, a value a minute: a+bxn is a, and then n times b more.
func TestAlerts(t *testing.T) {
	all := alerts(t)
	tested := map[string]bool{}
	for _, c := range []struct {
		alert, what, series string
		after               time.Duration
		fires               bool
	}{
		{
			"CleanupNoSuccess",
			"a success 37 hours ago, told by two replicas",
			`cleanupd_last_success_timestamp_seconds{job="c",instance="a",tasks="all"} 3600x3000
cleanupd_last_success_timestamp_seconds{job="c",instance="b",tasks="all"} 3600x3000`,
			38 * time.Hour,
			true,
		},
		{
			"CleanupNoSuccess",
			"a success a day ago",
			`cleanupd_last_success_timestamp_seconds{job="c",instance="a",tasks="all"} 3600x3000`,
			25 * time.Hour,
			false,
		},
		{
			"CleanupNoSuccess",
			"only a part succeeded",
			`cleanupd_last_success_timestamp_seconds{job="c",tasks="all"} 0x3000
cleanupd_last_success_timestamp_seconds{job="c",tasks="some"} 130000x3000`,
			38 * time.Hour,
			true,
		},
		{
			"CleanupNoSuccess",
			"installed a day ago, no run yet",
			`cleanupd_last_success_timestamp_seconds{job="c",tasks="all"} 0x3000`,
			25 * time.Hour,
			false,
		},
		{
			"CleanupNoSuccess",
			"one of two databases, in two namespaces",
			`cleanupd_last_success_timestamp_seconds{job="c",namespace="a",tasks="all"} 3600x3000
cleanupd_last_success_timestamp_seconds{job="c",namespace="b",tasks="all"} 130000x3000`,
			38 * time.Hour,
			true,
		},
		{
			"CleanupFallingBehind",
			"installed a moment ago on a database that nobody ever cleaned",
			`cleanupd_last_success_timestamp_seconds{job="c",tasks="all"} 0x600
cleanupd_oldest_obsolete_row_age_seconds{job="c",table="t"} 90000000+60x600`,
			8 * time.Hour,
			false,
		},
		{
			"CleanupFallingBehind",
			"three days old, and growing",
			`cleanupd_last_success_timestamp_seconds{job="c",tasks="all"} 1x600
cleanupd_oldest_obsolete_row_age_seconds{job="c",instance="a",table="t"} 172800+60x600
cleanupd_oldest_obsolete_row_age_seconds{job="c",instance="b",table="t"} 172800+60x600`,
			8 * time.Hour,
			true,
		},
		{
			"CleanupFallingBehind",
			"a day old, and growing",
			`cleanupd_last_success_timestamp_seconds{job="c",tasks="all"} 1x600
cleanupd_oldest_obsolete_row_age_seconds{job="c",table="t"} 50000+60x600`,
			8 * time.Hour,
			false,
		},
		{
			"CleanupFallingBehind",
			"old, but a run catches up",
			`cleanupd_last_success_timestamp_seconds{job="c",tasks="all"} 1x600
cleanupd_oldest_obsolete_row_age_seconds{job="c",table="t"} 900000-600x600`,
			8 * time.Hour,
			false,
		},
		{
			"CleanupRowsRetained",
			"a row, two nights in a row, told by two replicas",
			`cleanupd_rows_retained{job="c",instance="a",task="visitors",reason="failed"} 1x3000
cleanupd_rows_retained{job="c",instance="b",task="visitors",reason="failed"} 1x3000`,
			26 * time.Hour,
			true,
		},
		{
			"CleanupRowsRetained",
			"a table that is never done to its end",
			`cleanupd_rows_retained{job="c",task="visitors",reason="locked"} 0x3000
cleanupd_tables_retained{job="c",task="visitors"} 1x3000`,
			26 * time.Hour,
			true,
		},
		{
			"CleanupRowsRetained",
			"rows were locked one night",
			`cleanupd_rows_retained{job="c",task="visitors",reason="locked"} 5x1439 0x3000`,
			26 * time.Hour,
			false,
		},
		{
			"CleanupTaskFallingBehind",
			"a task of two replicas",
			`cleanupd_task_falling_behind{job="c",instance="a",task="delivery-logs"} 1x300
cleanupd_task_falling_behind{job="c",instance="b",task="delivery-logs"} 1x300`,
			2 * time.Hour,
			true,
		},
		{
			"CleanupTaskFallingBehind",
			"a task in balance",
			`cleanupd_task_falling_behind{job="c",task="delivery-logs"} 0x300`,
			2 * time.Hour,
			false,
		},
		{
			"CleanupSequenceEnds",
			"a hundred days are left",
			`cleanupd_sequence_end_timestamp_seconds{job="c",sequence="public.xtknewid"} 8640000x300`,
			2 * time.Hour,
			true,
		},
		{
			"CleanupSequenceEnds",
			"a year is left",
			`cleanupd_sequence_end_timestamp_seconds{job="c",sequence="public.xtknewid"} 31536000x300`,
			2 * time.Hour,
			false,
		},
		{
			"CleanupRunFailed",
			"one failed",
			`cleanupd_runs_total{job="c",instance="a",state="failed",dry_run="false"} 0x30 1x90
cleanupd_runs_total{job="c",instance="b",state="failed",dry_run="false"} 0x120`,
			time.Hour,
			true,
		},
		{
			"CleanupRunFailed",
			"one failed two hours ago",
			`cleanupd_runs_total{job="c",state="failed",dry_run="false"} 0x30 1x300`,
			3 * time.Hour,
			false,
		},
		{
			"CleanupRunFailed",
			"a dry run failed, another succeeded",
			`cleanupd_runs_total{job="c",state="failed",dry_run="true"} 0x30 1x90
cleanupd_runs_total{job="c",state="succeeded",dry_run="false"} 0x30 1x90`,
			time.Hour,
			false,
		},
		{
			"CleanupGuardRefused",
			"told by two replicas",
			`cleanupd_guard_refused{job="c",instance="a",task="visitors",guard="share",table="t"} 1x60
cleanupd_guard_refused{job="c",instance="b",task="visitors",guard="share",table="t"} 1x60`,
			time.Hour,
			true,
		},
		{
			"CleanupGuardRefused", "accepted half an hour ago",
			`cleanupd_guard_refused{job="c",task="visitors",guard="share",table="t"} 1x30 _x30`, time.Hour, false,
		},
		{
			"CleanupRunFailedAttempts",
			"eight times, on two replicas",
			`cleanupd_run_failed_attempts_total{job="c",instance="a"} 0x30 1 2 3 4x90
cleanupd_run_failed_attempts_total{job="c",instance="b"} 0x30 1 2 3 4x90`,
			40 * time.Minute,
			true,
		},
		{
			"CleanupRunFailedAttempts", "once", `cleanupd_run_failed_attempts_total{job="c"} 0x30 1x90`, 40 * time.Minute,
			false,
		},
		{
			"CleanupRetainsWAL",
			"one message",
			`cleanupd_run_messages_total{job="c",instance="a",code="WAL_RETAINED",level="warning"} 0x30 1x90
cleanupd_run_messages_total{job="c",instance="b",code="WAL_RETAINED",level="warning"} 0x120`,
			time.Hour,
			true,
		},
		{
			"CleanupRetainsWAL", "another message",
			`cleanupd_run_messages_total{job="c",code="TABLE_LOCKED",level="warning"} 0x30 1x90`, time.Hour, false,
		},
		{
			"CleanupThrottled",
			"three quarters of the time, by two reasons",
			`cleanupd_throttled_seconds_total{job="c",reason="replica lag"} 0+30x200
cleanupd_throttled_seconds_total{job="c",reason="active sessions"} 0+15x200`,
			90 * time.Minute,
			true,
		},
		{
			"CleanupThrottled",
			"a quarter of the time",
			`cleanupd_throttled_seconds_total{job="c",reason="replica lag"} 0+15x200`,
			90 * time.Minute,
			false,
		},
		{
			"CleanupThrottled",
			"all the time, by the pace",
			`cleanupd_throttled_seconds_total{job="c",reason="gentle pace"} 0+60x200
cleanupd_throttled_seconds_total{job="c",reason="active sessions"} 0+15x200`,
			90 * time.Minute,
			false,
		},
		{
			"CleanupRunPaused",
			"thirteen hours ago, on two replicas",
			`cleanupd_run_paused_since_timestamp_seconds{job="c",instance="a",by="caller"} 3600x3000
cleanupd_run_paused_since_timestamp_seconds{job="c",instance="b",by="caller"} 3600x3000
cleanupd_run_paused_since_timestamp_seconds{job="c",instance="a",by="schedule"} 0x3000`,
			14 * time.Hour,
			true,
		},
		{
			"CleanupRunPaused",
			"eleven hours ago",
			`cleanupd_run_paused_since_timestamp_seconds{job="c",by="caller"} 3600x3000`,
			12 * time.Hour,
			false,
		},
		{
			"CleanupRunPaused",
			"outside of its windows since Monday",
			`cleanupd_run_paused_since_timestamp_seconds{job="c",by="caller"} 0x3000
cleanupd_run_paused_since_timestamp_seconds{job="c",by="schedule"} 3600x3000`,
			40 * time.Hour,
			false,
		},
		{
			"CleanupRunPaused",
			"resumed an hour ago",
			`cleanupd_run_paused_since_timestamp_seconds{job="c",by="caller"} 3600x780 0x3000`,
			14 * time.Hour,
			false,
		},
		{
			"CleanupTrashFull",
			"nine tenths of it, on two replicas",
			`cleanupd_trash_bytes{job="c",instance="a"} 900x60
cleanupd_trash_bytes{job="c",instance="b"} 900x60
cleanupd_trash_max_bytes{job="c",instance="a"} 1000x60
cleanupd_trash_max_bytes{job="c",instance="b"} 1000x60`,
			20 * time.Minute,
			true,
		},
		{
			"CleanupTrashFull",
			"three quarters of it",
			`cleanupd_trash_bytes{job="c"} 750x60
cleanupd_trash_max_bytes{job="c"} 1000x60`,
			20 * time.Minute,
			false,
		},
		{"CleanupTrashFull", "it is empty", `cleanupd_trash_bytes{job="c"} 0x60`, 20 * time.Minute, false},
		{
			"CleanupNotificationGivenUp",
			"one, by one of two replicas",
			`cleanupd_notifications_total{job="c",instance="a",target="t",outcome="given_up"} 0x30 1x90
cleanupd_notifications_total{job="c",instance="b",target="t",outcome="given_up"} 0x120`,
			time.Hour,
			true,
		},
		{
			"CleanupNotificationGivenUp", "attempts that failed",
			`cleanupd_notifications_total{job="c",target="t",outcome="failed"} 0+1x120`, time.Hour, false,
		},
		{
			"CleanupDatabaseSilent",
			"on both replicas",
			`cleanupd_scrape_error{job="c",instance="a",of="runs"} 1x60
cleanupd_scrape_error{job="c",instance="b",of="runs"} 1x60`,
			20 * time.Minute,
			true,
		},
		{
			"CleanupDatabaseSilent",
			"on one replica",
			`cleanupd_scrape_error{job="c",instance="a",of="runs"} 1x60
cleanupd_scrape_error{job="c",instance="b",of="runs"} 0x60`,
			20 * time.Minute,
			false,
		},
		{"CleanupDown", "no replica answers", `up{job="cleanupd",instance="a"} 0x60`, 20 * time.Minute, true},
		{
			"CleanupDown",
			"no replica of one of two databases",
			`up{job="cleanupd-a",instance="a"} 0x60
up{job="cleanupd-b",instance="b"} 1x60`,
			20 * time.Minute,
			true,
		},
		{"CleanupDown", "there is no target", `up{job="other",instance="a"} 1x60`, 20 * time.Minute, true},
		{
			"CleanupDown",
			"one replica answers",
			`up{job="cleanupd",instance="a"} 0x60
up{job="cleanupd",instance="b"} 1x60`,
			20 * time.Minute,
			false,
		},
		{
			"CleanupReplicaDown",
			"one of two",
			`up{job="cleanupd",instance="a"} 0x60
up{job="cleanupd",instance="b"} 1x60`,
			20 * time.Minute,
			true,
		},
		{"CleanupReplicaDown", "not for long", `up{job="cleanupd",instance="a"} 1x15 0x5`, 20 * time.Minute, false},
	} {
		t.Run(c.alert+": "+c.what, func(t *testing.T) {
			found := firing(t, all[c.alert], c.series, c.after)
			if len(found) != map[bool]int{true: 1}[c.fires] {
				t.Fatalf("%d alerts fire: %v", len(found), found)
			}
			for _, a := range found {
				a.Annotations.Range(func(l labels.Label) {
					if strings.Contains(l.Value, "<no value>") || strings.Contains(l.Value, "error expanding") {
						t.Errorf("%s: %s", l.Name, l.Value)
					}
				})
			}
		})
		tested[c.alert] = tested[c.alert] || c.fires
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		if !tested[name] {
			t.Errorf("%s is not tested", name)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) ||
			r.Annotations["summary"] == "" ||
			r.Annotations["description"] == "" {
			t.Errorf("%s has no severity, summary or description", name)
		}
	}
}
