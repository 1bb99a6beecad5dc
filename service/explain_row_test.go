package service_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/rowkey"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
)

// ExplainRow returns, over gRPC and over REST, why a row is or is not deleted: the verdict, the part of the rule, and
// the time; for a row that is gone, the runs that may have deleted it. It shows only columns that rules read.
func TestExplainRow(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(
		`INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema, sTrackingLogSchema)
			VALUES (1, 'nms:broadLogRcp', 'nms:trackingLogRcp');
		INSERT INTO NmsTrackingLogRcp (iTrackingLogId, iRecipientId, tsLog)
			VALUES (1, 1, now() - interval '300 days'), (2, 1, '2000-01-01'), (3, 104, now() - interval '300 days');
		INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) VALUES (1), (2), (3), (4);
		INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete)
			VALUES (1, 1, now() - interval '1 year'), (2, 1, now() - interval '1 day'), (3, 0,
			now() - interval '1 year'), (0, 1, '2000-01-01');
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iRecipientId, tsEvent, tsLastModified)
			SELECT i, i, 100 + i, now(), now() FROM generate_series(1, 4) i;
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsEvent, tsLastModified)
			VALUES (5, 3, now() - interval '9 years', now() - interval '9 years'), (6, 3, NULL, NULL);
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iRecipientId, tsEvent, tsLastModified)
			VALUES (7, 3, 104, now(), now());
		INSERT INTO NmsGroup (iGroupId, iDeleteStatus) VALUES (5, 1);
			INSERT INTO NmsRcpGrpRel (iGroupId, iRecipientId) VALUES (5, 7), (6, 7);
		INSERT INTO XtkWorkflow (iWorkflowId, iHistory) VALUES (1, 30);
			INSERT INTO XtkWorkflowLog (iWorkflowLogId, iWorkflowId, tsLog, sMessage)
			VALUES (1, 1, now() - interval '10 days', 'secret');
		INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('live session', now() + interval '1 hour');
		INSERT INTO NmsMxDomain (iMXIP, sDomain) VALUES (5, 'a'), (5, 'a,b=c,');
		INSERT INTO XtkWorkflowLog (iWorkflowLogId, iWorkflowId, tsLog)
			VALUES (2, 1, 'infinity'), (3, 1, '294276-12-31 UTC');
		INSERT INTO XtkAudit (iAuditId, tsChanged)
			VALUES (1, 'infinity'), (2, '294276-12-31 UTC'), (3, '9999-12-31 UTC'), (4, '9999-01-01 UTC'), (5,
			'-infinity')`,
	)
	if _, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
		Hold: &cleanupv1.Hold{
			Reason: "a",
			What:   &cleanupv1.Hold_Recipients{Recipients: &cleanupv1.HeldRows{Ids: []int64{104}}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	s.db.Do("UPDATE NmsBroadLogRcp SET tsLastModified = '2000-01-01', tsEvent = '2000-01-01' WHERE iBroadLogId = 4")
	ask := func(table, key string) *cleanupv1.ExplainRowResponse {
		t.Helper()
		out, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: table, Key: rowkey.Parse(key)})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	soon := func(x *cleanupv1.ExplainRowResponse, days float64) bool {
		in := time.Until(x.GetDeleteAfterTime().AsTime()).Hours() / 24
		return in > days-0.1 && in < days+0.1
	}
	for _, c := range []struct {
		table, key string
		verdict    cleanupv1.Verdict
		task       string
		also       func(x *cleanupv1.ExplainRowResponse) bool
	}{
		{"NmsDelivery", "1", cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN, "deliveries", nil},
		{
			"public.nmsdelivery",
			"ideliveryid=2",
			cleanupv1.Verdict_VERDICT_DELETE_LATER,
			"deliveries",
			func(x *cleanupv1.ExplainRowResponse) bool { return soon(x, 6) },
		},
		{"nmsdelivery", "3", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{"nmsdelivery", "0", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{"nmsbroadlogrcp", "1", cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN, "deliveries", nil},
		{
			"nmsbroadlogrcp",
			"2",
			cleanupv1.Verdict_VERDICT_DELETE_LATER,
			"deliveries",
			func(x *cleanupv1.ExplainRowResponse) bool { return soon(x, 6) },
		},
		{
			"nmsbroadlogrcp",
			"3",
			cleanupv1.Verdict_VERDICT_DELETE_LATER,
			"delivery-logs",
			func(x *cleanupv1.ExplainRowResponse) bool { return soon(x, 180) },
		},
		{
			"nmsbroadlogrcp",
			"4",
			cleanupv1.Verdict_VERDICT_RETAINED,
			"delivery-logs",
			func(x *cleanupv1.ExplainRowResponse) bool { return strings.Contains(x.GetWhy(), "on hold") },
		},
		{"nmsbroadlogrcp", "5", cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN, "delivery-logs", nil},
		{
			"nmsbroadlogrcp",
			"7",
			cleanupv1.Verdict_VERDICT_RETAINED,
			"delivery-logs",
			func(x *cleanupv1.ExplainRowResponse) bool {
				return !slices.ContainsFunc(x.GetSteps(),
					func(s *cleanupv1.ExplainedStep) bool { return !s.GetOnHold() }) && x.GetDeleteAfterTime() == nil
			},
		},
		{"nmsbroadlogrcp", "6", cleanupv1.Verdict_VERDICT_RETAINED, "", func(x *cleanupv1.ExplainRowResponse) bool {
			return strings.Contains(fmt.Sprint(x.GetSteps()), "TRUTH_UNKNOWN") && strings.Contains(
				fmt.Sprint(x.GetSteps()), "is NULL")
		}},
		{
			"nmsrcpgrprel", "igroupid=5,irecipientid=7", cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN, "lists-to-delete",
			nil,
		},
		{"nmsrcpgrprel", "igroupid=6,irecipientid=7", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{
			"xtkworkflowlog",
			"1",
			cleanupv1.Verdict_VERDICT_DELETE_LATER,
			"workflow-instances",
			func(x *cleanupv1.ExplainRowResponse) bool { return soon(x, 20) },
		},
		{"xtkworkflowlog", "2", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{"xtkworkflowlog", "3", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{"xtkaudit", "1", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{"xtkaudit", "2", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{"xtkaudit", "3", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{
			"xtkaudit",
			"4",
			cleanupv1.Verdict_VERDICT_DELETE_LATER,
			"audit-trail",
			func(x *cleanupv1.ExplainRowResponse) bool { return x.GetDeleteAfterTime().CheckValid() == nil },
		},
		{"xtkaudit", "5", cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN, "audit-trail", nil},
		{
			"nmswebtrackinglog",
			"1",
			cleanupv1.Verdict_VERDICT_DELETE_LATER,
			"tracking-logs",
			func(x *cleanupv1.ExplainRowResponse) bool {
				return soon(x, 65) && strings.Contains(fmt.Sprint(x.GetSteps()), "nmstrackinglogrcp 1")
			},
		},
		{"nmswebtrackinglog", "2", cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN, "tracking-logs", nil},
		{
			"nmswebtrackinglog",
			"3",
			cleanupv1.Verdict_VERDICT_RETAINED,
			"tracking-logs",
			func(x *cleanupv1.ExplainRowResponse) bool { return strings.Contains(x.GetWhy(), "on hold") },
		},
		{"nmswebtrackinglog", "4", cleanupv1.Verdict_VERDICT_RETAINED, "", nil},
		{"xtksessioninfo", "skey=live session", cleanupv1.Verdict_VERDICT_DELETE_LATER, "sessions", nil},
	} {
		x := ask(c.table, c.key)
		if !x.GetExists() || x.GetVerdict() != c.verdict || x.GetTask() != c.task || (c.also != nil && !c.also(x)) ||
			len(x.GetSteps()) == 0 {
			t.Errorf("%s %s: %v", c.table, c.key, x)
		}
		if text := x.String(); strings.Contains(text, "secret") || strings.Contains(text, "live session") {
			t.Errorf("%s %s: it shows what no rule reads: %s", c.table, c.key, text)
		}
	}
	if got := s.call(t, "POST", "/v1/explain", `{"table": "nmsdelivery", "key": [{"value": "1"}]}`); got.code != 200 ||
		!strings.Contains(got.body, `"verdict":"VERDICT_DELETE_NEXT_RUN"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := s.call(t, "GET", "/v1/explain?table=nmsdelivery&key=1", ""); got.code != 200 || !strings.Contains(
		got.body, `"verdict":"VERDICT_DELETE_NEXT_RUN"`,
	) ||
		!strings.Contains(strings.ReplaceAll(got.body, " ", ""), `"values":["iDeleteStatus=1"]`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"deliveries"}})
	if err != nil {
		t.Fatal(err)
	}
	x := ask("nmsdelivery", "1")
	if x.GetExists() || len(x.GetRuns()) != 1 || x.GetRuns()[0].GetRunId() != run.GetId() ||
		x.GetRuns()[0].GetRowsDeleted() != 1 ||
		strings.Join(x.GetRuns()[0].GetTasks(), " ") != "deliveries" ||
		x.GetSteps() != nil {
		t.Errorf("a row that is gone: %v", x)
	}
	if x := ask("xtkaudit", "6"); x.GetExists() || x.GetRuns() != nil {
		t.Errorf("a row that never was: %v", x)
	}
	for _, c := range []struct {
		table, key string
		code       codes.Code
		reason     string // or the field
	}{
		{"nmsdelivery", "", codes.InvalidArgument, "key"},
		{"", "1", codes.InvalidArgument, "table"},
		{"nmsdelivery", "ideliveryid=", codes.InvalidArgument, "key[0].value"},
		{"nmsdelivery", "x", codes.InvalidArgument, "key"},
		{"nmsdelivery", "nosuch=1", codes.InvalidArgument, "key"},
		{"nmsdelivery", "ideliveryid=1,nosuch=1", codes.InvalidArgument, "key"},
		{"nmsdelivery", "1'; DROP TABLE nmsdelivery", codes.InvalidArgument, "key"},
		{"xtkworkflowlog", "tslog=1", codes.InvalidArgument, "key"},
		{"nmsrcpgrprel", "5", codes.InvalidArgument, "key"},
		{"nmsrcpgrprel", "irecipientid=7\x00", codes.InvalidArgument, "key[0].value"},
		{"nmsdelivery", "iismodel=0", codes.FailedPrecondition, "NO_INDEX"},
		{"nmsbroadlogrcp", "ibroadlogid=1,saddress=a", codes.InvalidArgument, "key"},
		{"nmsbroadlogrcp", "ibroadlogid=1,irecipientid=101", codes.InvalidArgument, "key"},
		{"nmsrcpgrprel", "irecipientid=7", codes.FailedPrecondition, "NO_INDEX"},
		{"nmsaddress", "saddress=a", codes.InvalidArgument, "key"},
		{"xtkworkflowlog", "iworkflowid=1", codes.InvalidArgument, "key"},
		{"xtkoption", "1", codes.FailedPrecondition, "NOT_COVERED"},
		{"no_such_table", "1", codes.FailedPrecondition, "NOT_COVERED"},
		{"pg_catalog.pg_authid", "10", codes.FailedPrecondition, "NOT_COVERED"},
		{"cleanupd.run", "1", codes.FailedPrecondition, "NOT_COVERED"},
	} {
		_, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: c.table, Key: rowkey.Parse(c.key)})
		info, bad := wantCode(t, err, c.code)
		if got := info.GetReason(); (bad != nil && bad.GetFieldViolations()[0].GetField() != c.reason) ||
			(bad == nil && got != c.reason) {
			t.Errorf("%s %q: %v", c.table, c.key, err)
		}
	}
	s.db.Do("INSERT INTO NmsRcpGrpRel (iGroupId, iRecipientId) SELECT 9, i FROM generate_series(1, 3) i")
	_, err = s.ExplainRow(t.Context(),
		&cleanupv1.ExplainRowRequest{Table: "nmsrcpgrprel", Key: rowkey.Parse("igroupid=9")})
	if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != "key" {
		t.Errorf("several rows: %v", err)
	}
}

// In a database without Campaign, an explanation says whether the table exists, and that no policy covers it.
func TestExplainRowOfATableWithoutPolicy(t *testing.T) {
	t.Parallel()
	s := shop(t)
	for table, want := range map[string]string{
		"order_line":          "no task and no policy covers order_line: its rows are kept",
		`"shop"."order_line"`: `no task and no policy covers "shop"."order_line": its rows are kept`,
		"shop.login":          "no task and no policy covers shop.login: its rows are kept",
		"shop.orders":         `there is no table "shop.orders"`,
		"order line":          `there is no table "order line"`,
	} {
		_, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: table, Key: rowkey.Parse("1")})
		info, _ := wantCode(t, err, codes.FailedPrecondition)
		if info.GetReason() != "NOT_COVERED" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", table, err, want)
		}
	}
	_, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: "a\x00", Key: rowkey.Parse("1")})
	wantCode(t, err, codes.InvalidArgument)
}

// An explanation says what keeps a row that a policy matches: rows that refer to it, or that the policy is disabled. If
// the rule has not run yet, only a run that follows a saved plan deletes the row. A partition may be in another schema
// than its table.
func TestExplainRowOfPolicies(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE SCHEMA old; CREATE TABLE shop.visit (id int, at timestamptz, PRIMARY KEY (id, at))
			PARTITION BY RANGE (at);
		CREATE TABLE old.visit_2020 PARTITION OF shop.visit FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
		INSERT INTO shop.visit VALUES (1, '2020-02-03T00:00:00Z');
		CREATE TABLE shop.note (line bigint REFERENCES shop.order_line);
		INSERT INTO shop.note SELECT max(id) FROM shop.order_line WHERE note = 'note 98'`)
	setPolicy(t, s, oldOrders())
	setPolicy(t, s, &cleanupv1.Policy{Name: "visits", Table: "shop.visit", Enabled: true, OlderThan: olderThan("at", 9)})
	line := func(which string) string {
		return fmt.Sprint(s.db.Int("SELECT " + which + "(id) FROM shop.order_line WHERE note = 'note 98'"))
	}
	check := func(table, key string, verdict cleanupv1.Verdict, why string) {
		t.Helper()
		x, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: table, Key: rowkey.Parse(key)})
		if err != nil || x.GetVerdict() != verdict || len(x.GetSteps()) != 1 ||
			!strings.Contains(x.GetSteps()[0].GetWhy(), why) {
			t.Errorf("%s %s: %v, %v, want %s: %s", table, key, x, err, verdict, why)
		}
	}
	const next, retained = cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN, cleanupv1.Verdict_VERDICT_RETAINED
	check("shop.order_line", line("max"), retained, "foreign keys of rows of shop.note refer to it")
	check("shop.order_line", line("min"), next, "has not run yet")
	check("old.visit_2020", "id=1,at=2020-02-03T00:00:00Z", next, "has not run yet")
	disabled := oldOrders()
	disabled.Enabled = false
	setPolicy(t, s, disabled)
	check("shop.order_line", line("min"), retained, "the task is disabled")
}

// A row that goes with one to which it refers is explained by the task that deletes that one. A row that foreign keys
// will keep is retained, unless a task deletes those that refer to it; the tables with them are named, even if their
// rows refer to others that would go with the row.
func TestExplainRowAmongForeignKeys(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE SCHEMA f; SET search_path = f;
		CREATE TABLE thread (id int PRIMARY KEY, at timestamptz) PARTITION BY RANGE (id);
		CREATE TABLE thread_1 PARTITION OF thread FOR VALUES FROM (1) TO (100);
		CREATE TABLE post (id int PRIMARY KEY, thread int REFERENCES thread ON DELETE CASCADE, at timestamptz);
		CREATE TABLE reply (id int PRIMARY KEY, post int REFERENCES post ON DELETE CASCADE, at timestamptz);
		CREATE TABLE proof (post int REFERENCES post, at timestamptz);
		CREATE TABLE vote (id int PRIMARY KEY, at timestamptz);
		CREATE TABLE ballot (id int PRIMARY KEY, vote int REFERENCES vote, at timestamptz);
		INSERT INTO thread SELECT i, now() - CASE i WHEN 2 THEN interval '8 days' ELSE interval '30 days' END
			FROM generate_series(1, 3) i;
		INSERT INTO post SELECT i, i, now() FROM generate_series(1, 3) i;
		INSERT INTO reply SELECT i, i, now() FROM generate_series(1, 3) i;
		CREATE TABLE likes (post int REFERENCES post ON DELETE CASCADE, who int, PRIMARY KEY (post, who));
		INSERT INTO likes VALUES (1, 1), (2, 1), (3, 1);
		INSERT INTO proof VALUES (3, now()); INSERT INTO post VALUES (4, NULL, now()), (5, NULL, now());
		INSERT INTO proof VALUES (4, now()); INSERT INTO vote VALUES (1, now()); INSERT INTO ballot VALUES (1, 1, now())`)
	for table, days := range map[string]int32{"thread": 9, "post": 90, "reply": 300, "vote": 5, "ballot": 5} {
		setPolicy(t, s, &cleanupv1.Policy{
			Name: table + "s", Table: "f." + table, Enabled: table != "reply", OlderThan: olderThan("at", days),
		})
	}
	const (
		next     = cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN
		later    = cleanupv1.Verdict_VERDICT_DELETE_LATER
		retained = cleanupv1.Verdict_VERDICT_RETAINED
	)
	for _, c := range []struct {
		table, key string
		verdict    cleanupv1.Verdict
		task       string
		days       float64
		why        string
	}{
		{"thread", "1", next, "policy/threads", 0, ""},
		{"post", "1", next, "policy/threads", 0, ""},
		{"reply", "1", next, "policy/threads", 0, ""},
		{"post", "2", later, "policy/threads", 1, ""},
		{"reply", "2", later, "policy/threads", 1, ""},
		{"thread", "3", retained, "", 0, "foreign keys of rows of f.proof refer to it"},
		{"post", "3", retained, "", 0, "its row of f.thread is retained: foreign keys of rows of f.proof refer to it"},
		{"post", "4", retained, "", 0, "policy/posts does not delete it, since foreign keys of rows of f.proof refer to it"},
		{"post", "5", later, "policy/posts", 90, ""},
		{"likes", "post=1,who=1", next, "policy/threads", 0, ""}, // which no policy covers
		{"likes", "post=2,who=1", later, "policy/threads", 1, ""},
		{"likes", "post=3,who=1", retained, "", 0, "its row of f.thread is retained"},
		{"vote", "1", later, "policy/votes", 5, "unless foreign keys of rows of f.ballot still refer to it"},
	} {
		x, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: "f." + c.table, Key: rowkey.Parse(c.key)})
		if err != nil {
			t.Fatal(err)
		}
		in := 0.0
		if x.GetVerdict() == later {
			in = time.Until(x.GetDeleteAfterTime().AsTime()).Hours() / 24
		}
		if x.GetVerdict() != c.verdict || x.GetTask() != c.task || in < c.days-0.1 || in > c.days+0.1 ||
			!strings.Contains(x.GetWhy(), c.why) {
			t.Errorf("%s %s: %v", c.table, c.key, x)
		}
	}
}

// A step that is skipped, because a usable option, a table or a column is missing, is shown with the reason, and so is
// one whose set is not known.
func TestExplainRowOfSkippedSteps(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(
		`INSERT INTO XtkOption (iOptionId, sName, iDataType, iLongValue)
			VALUES (1, 'XtkCleanup_AuditTrailPurgeDelay', 3, 30), (2, 'NmsCleanup_RecycledDeliveryPurgeDelay', 3, 7);
		INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01'); INSERT INTO NmsVisitor (iVisitorId)
			VALUES (1); ALTER TABLE NmsVisitor DROP COLUMN iOrigin;
		INSERT INTO NmsDeliveryPart (iDeliveryPartId) VALUES (1); DROP TABLE XtkWorkflow CASCADE;
			INSERT INTO XtkWorkflowLogin (iWorkflowLoginId, iWorkflowId) VALUES (1, 1)`,
	)
	for _, c := range []struct{ table, task, why string }{
		{"xtkaudit", "audit-trail", "XtkCleanup_AuditTrailPurgeDelay"},
		{"nmsvisitor", "visitors", "no column iOrigin"},
		{"nmsdeliverypart", "deliveries", "NmsCleanup_RecycledDeliveryPurgeDelay"},
		{"xtkworkflowlogin", "workflow-logins", "orphans of XtkWorkflow are not deleted, because it is missing"},
	} {
		x, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: c.table, Key: rowkey.Parse("1")})
		if err != nil || x.GetVerdict() != cleanupv1.Verdict_VERDICT_RETAINED ||
			!slices.ContainsFunc(x.GetSteps(), func(s *cleanupv1.ExplainedStep) bool {
				return s.GetTask() == c.task && s.GetVerdict() == cleanupv1.Verdict_VERDICT_RETAINED &&
					strings.Contains(s.GetWhy(), c.why)
			}) {
			t.Errorf("%s: %v, %v", c.table, x, err)
		}
	}
}

// Rows to roll up are selected by their date, from the last time until now. Their table needs no key.
func TestExplainRowThatIsCoalesced(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(
		`INSERT INTO XtkOption (iOptionId, sName, iDataType, tsTimeStampValue)
			VALUES (1, 'NmsLastErrorStatCoalesce', 7, '2001-01-01 00:00:00Z');
		INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors)
			VALUES (1, 1, '2000-12-31 00:00:00Z', 50), (1, 1, '2001-01-01 00:00:00Z', 50), (1, 2,
			'2001-01-01 00:00:00Z', 50), (1, 1, '2999-01-01 00:00:00Z', 50)`,
	)
	explain := func(key string) *cleanupv1.ExplainRowResponse {
		t.Helper()
		x, err := s.ExplainRow(t.Context(),
			&cleanupv1.ExplainRowRequest{Table: "NmsEmailErrorStat", Key: rowkey.Parse(key)})
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return x
	}
	const goes = "tsdate=2001-01-01T00:00:00Z,imxip=1,ipublicid=1"
	for _, c := range []struct {
		key     string
		verdict cleanupv1.Verdict
		truths  []cleanupv1.Truth // not before the last time, before now
	}{
		{
			"tsdate=2000-12-31T00:00:00Z",
			cleanupv1.Verdict_VERDICT_RETAINED,
			[]cleanupv1.Truth{cleanupv1.Truth_TRUTH_FALSE, cleanupv1.Truth_TRUTH_TRUE},
		},
		{
			goes,
			cleanupv1.Verdict_VERDICT_DELETE_NEXT_RUN,
			[]cleanupv1.Truth{cleanupv1.Truth_TRUTH_TRUE, cleanupv1.Truth_TRUTH_TRUE},
		},
		{
			"tsdate=2999-01-01T01:00:00+01:00",
			cleanupv1.Verdict_VERDICT_DELETE_LATER,
			[]cleanupv1.Truth{cleanupv1.Truth_TRUTH_TRUE, cleanupv1.Truth_TRUTH_FALSE},
		},
	} {
		x := explain(c.key)
		if x.GetVerdict() != c.verdict || len(x.GetSteps()) != 1 ||
			!strings.Contains(x.GetSteps()[0].GetRule(), "tsDate from 2001-01-01 00:00 UTC to ") {
			t.Errorf("%s: %v", c.key, x)
			continue
		}
		for i, p := range x.GetSteps()[0].GetParts() {
			if p.GetTruth() != c.truths[i] || len(p.GetValues()) != 1 ||
				!strings.HasPrefix(p.GetValues()[0], "tsDate = ") {
				t.Errorf("%s: %v", c.key, p)
			}
		}
	}
	if x := explain("tsdate=2001-06-01T00:00:00Z"); x.GetExists() {
		t.Errorf("%v", x)
	}
	hold, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
		Hold: &cleanupv1.Hold{
			What:   &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: "NmsEmailErrorStat"}},
			Reason: "a dispute",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if x := explain(goes); x.GetVerdict() != cleanupv1.Verdict_VERDICT_RETAINED || !x.GetSteps()[0].GetOnHold() {
		t.Errorf("a held row: %v", x)
	}
	if _, err := s.ReleaseHold(t.Context(), &cleanupv1.ReleaseHoldRequest{HoldId: hold.GetHold().GetId()}); err != nil {
		t.Fatal(err)
	}
	s.db.Do("ALTER TABLE NmsEmailErrorStat DROP COLUMN iTotalErrors")
	if x := explain(goes); x.GetVerdict() != cleanupv1.Verdict_VERDICT_RETAINED ||
		!strings.Contains(x.GetSteps()[0].GetWhy(), "a column of it, is missing") {
		t.Errorf("a row of a table that is skipped: %v", x)
	}
}

// A row is found by a text, such as the key of a session, only for administrators, and the audit has each attempt,
// without the key.
func TestExplainRowByText(t *testing.T) {
	t.Parallel()
	authenticator, err := access.Open(t.Context(),
		access.Config{Log: slog.New(slog.DiscardHandler), TokenFile: tokenFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	s := serveAs(t, database(t), false, nil, transport.Config{Authenticator: authenticator})
	s.db.Do(
		"INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('123', now() + interval '1 hour'); INSERT INTO " +
			"NmsDelivery (iDeliveryId) VALUES (7)",
	)
	explain := func(token, table, key string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		_, err := s.ExplainRow(ctx, &cleanupv1.ExplainRowRequest{Table: table, Key: rowkey.Parse(key)})
		return err
	}
	for _, c := range []struct {
		token, table, key string
		code              codes.Code
	}{
		{"secret-viewer", "nmsdelivery", "7", codes.OK},
		{"secret-operator", "xtksessioninfo", "skey=123", codes.PermissionDenied},
		{"secret-admin", "xtksessioninfo", "skey=123", codes.OK},
	} {
		if err := explain(c.token, c.table, c.key); status.Code(err) != c.code {
			t.Errorf("%s %s: %v", c.token, c.key, err)
		}
	}
	want := []string{`PERMISSION_DENIED {}`, `OK {"table": "xtksessioninfo"}`}
	if got := s.db.Strings(
		"SELECT result || ' ' || details FROM cleanupd.audit WHERE rpc = 'InsightService/ExplainRow' ORDER BY time",
	); !slices.Equal(got, want) {
		t.Errorf("the audit has %q, want %q", got, want)
	}
	admin := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret-admin")
	page, err := s.ListAudit(admin, &cleanupv1.ListAuditRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var acts []string
	for _, e := range page.GetEntries() {
		acts = append(acts, fmt.Sprint(e.GetRole(), " ", e.GetCredentialType(), " ", codes.Code(e.GetStatusCode())))
	}
	if diff := cmp.Diff(
		[]string{"ROLE_ADMIN CREDENTIAL_TYPE_TOKEN OK", "ROLE_OPERATOR CREDENTIAL_TYPE_TOKEN PermissionDenied"}, acts,
	); diff != "" {
		t.Errorf("ListAudit (-want +got):\n%s", diff)
	}
}

// Without a key, ExplainRow says which keys the table has, over gRPC and over REST.
func TestExplainRowWithoutAKey(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do("CREATE UNIQUE INDEX ON NmsRcpGrpRel (iRecipientId, iGroupId)")
	for table, want := range map[string]string{
		"XtkAudit":       "is missing: for xtkaudit, give iauditid=…",
		"XtkSessionInfo": "is missing: for xtksessioninfo, give skey=…",
		"NmsRcpGrpRel":   "is missing: for nmsrcpgrprel, give igroupid=…,irecipientid=…, or irecipientid=…,igroupid=…",
	} {
		_, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: table})
		_, bad := wantCode(t, err, codes.InvalidArgument)
		if v := bad.GetFieldViolations()[0]; v.GetField() != "key" || v.GetDescription() != want {
			t.Errorf("%s: %v", table, v)
		}
		if got := s.call(t, "GET", "/v1/explain?table="+table, ""); got.code != 400 ||
			!strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s", table, got.code, got.body)
		}
	}
}

// The explanation of a row on hold names the holds that keep it with their reasons, to those who may list holds.
func TestExplainRowNamesHolds(t *testing.T) {
	t.Parallel()
	s, client, as := guardedClient(t)
	s.db.Do(`INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema, sTrackingLogSchema)
			VALUES (1, 'nms:broadLogRcp', 'nms:trackingLogRcp');
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iRecipientId, tsLastModified, tsEvent)
			SELECT i, i, '2000-01-01', '2000-01-01' FROM generate_series(104, 105) i;
		INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors) VALUES (1, 1, '2001-01-01', 50)`)
	hold := func(reason string, h *cleanupv1.Hold) string {
		t.Helper()
		h.Reason = reason
		out, err := client.CreateHold(as("admin"), &cleanupv1.CreateHoldRequest{Hold: h})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetHold().GetId()
	}
	recipients := func(id int64) *cleanupv1.Hold {
		return &cleanupv1.Hold{What: &cleanupv1.Hold_Recipients{Recipients: &cleanupv1.HeldRows{Ids: []int64{id}}}}
	}
	first, second := hold("lawsuit 1", recipients(104)), hold("lawsuit 2", recipients(104))
	hold("of another", recipients(105))
	table := hold("a dispute", &cleanupv1.Hold{
		What: &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: "NmsEmailErrorStat"}},
	})
	for _, c := range []struct{ table, key, why string }{
		{"NmsBroadLogRcp", "104", fmt.Sprintf(": hold %s (lawsuit 1); hold %s (lawsuit 2)", first, second)},
		{"NmsEmailErrorStat", "tsdate=2001-01-01T00:00:00Z", fmt.Sprintf(": hold %s (a dispute)", table)},
	} {
		for who, why := range map[string]string{"admin": c.why, "viewer": ""} {
			x, err := client.ExplainRow(as(who),
				&cleanupv1.ExplainRowRequest{Table: c.table, Key: rowkey.Parse(c.key)})
			if err != nil {
				t.Fatal(err)
			}
			if want := "it, or a row that belongs to it, is on hold" + why; x.GetSteps()[0].GetWhy() != want {
				t.Errorf("%s to %s: %q, want %q", c.table, who, x.GetSteps()[0].GetWhy(), want)
			}
			var named string
			for _, h := range x.GetSteps()[0].GetHolds() {
				named += fmt.Sprintf("; hold %s (%s)", h.GetHoldId(), h.GetReason())
			}
			if strings.TrimPrefix(named, "; ") != strings.TrimPrefix(why, ": ") {
				t.Errorf("%s to %s: the holds are %s", c.table, who, named)
			}
		}
	}
}
