package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// Holds are created, listed page by page, and released, over gRPC and over REST; runs retain the rows that they cover,
// and report how many. The audit trail says who created them.
func TestHolds(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 5) i")
	rows := func(ids ...int64) *cleanupv1.HeldRows { return &cleanupv1.HeldRows{Ids: ids} }
	for _, h := range []*cleanupv1.Hold{
		{Reason: "a", What: &cleanupv1.Hold_Deliveries{Deliveries: rows(1, 2)}},
		{Reason: "b", What: &cleanupv1.Hold_Lists{Lists: rows(-1)}},
		{Reason: "c", What: &cleanupv1.Hold_Workflows{Workflows: rows(1)}},
		{Reason: "d", What: &cleanupv1.Hold_Recipients{Recipients: rows(1)}},
	} {
		out, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: h})
		if err != nil || out.GetHold().GetId() == "" || out.GetHold().GetReason() != h.GetReason() ||
			out.GetHold().GetCreateTime() == nil ||
			out.GetHold().GetCreatedBy() == "" {
			t.Fatalf("%v, %v", out, err)
		}
		if covers := strings.Contains(
			strings.Join(out.GetHold().GetNotCovered(), " "), "nmscouponvalue",
		); covers != (h.GetRecipients() != nil) {
			t.Errorf("not covered: %v", out)
		}
	}
	got := s.call(t, "POST", "/v1/holds", `{"table": {"name": "XtkSessionInfo"}, "reason": "over REST"}`)
	if got.code != 200 || !strings.Contains(got.body, `"name":"public.xtksessioninfo"`) {
		t.Fatalf("%d %s", got.code, got.body)
	}
	token, all := "", []string{}
	for pages := 0; pages == 0 || token != ""; pages++ {
		page, err := s.ListHolds(t.Context(), &cleanupv1.ListHoldsRequest{PageSize: 2, PageToken: token})
		if err != nil || len(page.GetHolds()) > 2 || pages > 2 {
			t.Fatalf("%v, %v", page, err)
		}
		for _, h := range page.GetHolds() {
			all = append(all, h.GetReason())
		}
		token = page.GetNextPageToken()
	}
	if strings.Join(all, " ") != "over REST d c b a" {
		t.Errorf("listed %q", all)
	}
	for _, dry := range []bool{true, false} {
		_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: dry, Tasks: []string{"sessions"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range run.GetResults() {
			if r.GetTask() == "sessions" &&
				(r.GetRowsOnHold() != 5 || r.GetRowsDeleted() != 0 || r.GetRowsRetained() != 0 ||
					r.GetDetail() != "5 obsolete rows are on hold") {
				t.Errorf("dry %v: %v", dry, r)
			}
		}
	}
	list, err := s.ListHolds(t.Context(), &cleanupv1.ListHoldsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := list.GetHolds()[0].GetId()
	for range 2 { // the second call changes nothing
		if got := s.call(t, "POST", "/v1/holds/"+id+":release", ""); got.code != 200 ||
			!strings.Contains(got.body, "releaseTime") {
			t.Errorf("%d %s", got.code, got.body)
		}
	}
	if got := s.call(t, "GET", "/v1/holds", ""); got.code != 200 || strings.Contains(got.body, id) {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := s.call(t, "GET", "/v1/holds?include_ended=true", ""); got.code != 200 || !strings.Contains(got.body, id) {
		t.Errorf("%d %s", got.code, got.body)
	}
	if _, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}}); err != nil ||
		s.db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
		t.Errorf("%v, %v", run, err)
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.audit WHERE rpc LIKE '%Hold' AND details ? 'hold_id'"); n < 6 {
		t.Errorf("%d entries of the audit trail", n)
	}
}

// A hold that would retain nothing, or not what was meant, is refused field by field.
func TestHoldsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	rows := &cleanupv1.Hold_Deliveries{Deliveries: &cleanupv1.HeldRows{Ids: []int64{1}}}
	table := func(name string) *cleanupv1.Hold_Table {
		return &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: name}}
	}
	for field, h := range map[string]*cleanupv1.Hold{
		"hold":                nil,
		"hold.reason":         {What: rows},
		"hold.expire_time":    {What: rows, Reason: "a", ExpireTime: timestamppb.New(time.Now().Add(-time.Minute))},
		"hold.deliveries.ids": {What: &cleanupv1.Hold_Deliveries{Deliveries: &cleanupv1.HeldRows{}}, Reason: "a"},
		"hold.lists.ids": {
			What:   &cleanupv1.Hold_Lists{Lists: &cleanupv1.HeldRows{Ids: []int64{1, 0}}},
			Reason: "a",
		},
		"hold.recipients.ids": {
			What:   &cleanupv1.Hold_Recipients{Recipients: &cleanupv1.HeldRows{Ids: make([]int64, 10_001)}},
			Reason: "a",
		},
		"hold.table.name": {What: table("NmsBroadLogRpc"), Reason: "a"},
		"hold.rows.table": {What: &cleanupv1.Hold_Rows{Rows: &cleanupv1.HeldTableRows{
			Table: "NmsDelivery", Columns: []*cleanupv1.HeldColumn{{Column: "iDeliveryId", Value: "1"}},
		}}, Reason: "a"},
	} {
		_, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: h})
		_, bad := wantCode(t, err, codes.InvalidArgument)
		if len(bad.GetFieldViolations()) == 0 || bad.GetFieldViolations()[0].GetField() != field {
			t.Errorf("%s: %v", field, bad)
		}
	}
	for _, name := range []string{"", "x\x00", `"; DROP TABLE NmsDelivery`} {
		_, err := s.CreateHold(t.Context(),
			&cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{What: table(name), Reason: "a"}})
		wantCode(t, err, codes.InvalidArgument)
	}
	for _, reason := range []string{
		"x\x00", strings.Repeat("é", 1_001), " \t\n", "\u200b", "\u00ad\u2060", "\u3164", "\u2800", "…",
	} {
		_, err := s.CreateHold(t.Context(),
			&cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{What: rows, Reason: reason}})
		wantCode(t, err, codes.InvalidArgument)
	}
	for _, req := range []*cleanupv1.ListHoldsRequest{{PageSize: -1}, {PageToken: "x"}, {PageToken: "MA"}} {
		_, err := s.ListHolds(t.Context(), req)
		wantCode(t, err, codes.InvalidArgument)
	}
	for _, id := range []string{
		"x", "01a20609-283b-755d-90ec-99cde01f104d", "urn:uuid:01a20609-283b-755d-90ec-99cde01f104d",
	} {
		_, err := s.ReleaseHold(t.Context(), &cleanupv1.ReleaseHoldRequest{HoldId: id})
		wantCode(t, err, codes.NotFound)
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.hold"); n != 0 {
		t.Errorf("%d holds are stored", n)
	}
}

// A view cannot be put on hold, unless it is a work table. The error names the tables beneath it.
func TestHoldsOfViews(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(
		`CREATE VIEW logs AS SELECT l.* FROM NmsBroadLogRcp l JOIN NmsDelivery USING (iDeliveryId);
			CREATE MATERIALIZED VIEW wkf7_stored AS SELECT * FROM XtkAudit; CREATE VIEW wkf7_view AS SELECT *
			FROM XtkAudit`,
	)
	create := func(name string) error {
		_, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
			Hold: &cleanupv1.Hold{
				What:   &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: name}},
				Reason: "a",
			},
		})
		return err
	}
	for name, beneath := range map[string]string{
		"logs":            "public.nmsbroadlogrcp, public.nmsdelivery",
		"wkf7_stored":     "public.xtkaudit",
		"nothing_like_it": "no table",
	} {
		err := create(name)
		_, bad := wantCode(t, err, codes.InvalidArgument)
		if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != "hold.table.name" ||
			!strings.Contains(v[0].GetDescription(), beneath) {
			t.Errorf("%s: %v", name, v)
		}
	}
	if err := create("wkf7_view"); err != nil {
		t.Error(err)
	}
}

// All holds together have a bounded number of ids. A released hold no longer counts.
func TestIDsOnHoldAreBounded(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	create := func(n int64) (*cleanupv1.CreateHoldResponse, error) {
		ids := make([]int64, 10_000)
		for i := range ids {
			ids[i] = n*10_000 + int64(i) + 1
		}
		return s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
			Hold: &cleanupv1.Hold{
				What:   &cleanupv1.Hold_Recipients{Recipients: &cleanupv1.HeldRows{Ids: ids}},
				Reason: "a",
			},
		})
	}
	var last *cleanupv1.CreateHoldResponse
	for n := range int64(10) {
		var err error
		if last, err = create(n); err != nil {
			t.Fatal(err)
		}
	}
	_, err := create(10)
	_, bad := wantCode(t, err, codes.InvalidArgument)
	if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != "hold" ||
		!strings.Contains(v[0].GetDescription(), "the 100000 already on hold") {
		t.Errorf("%v", v)
	}
	if _, err := s.ReleaseHold(t.Context(), &cleanupv1.ReleaseHoldRequest{HoldId: last.GetHold().GetId()}); err != nil {
		t.Fatal(err)
	}
	if _, err := create(10); err != nil {
		t.Error(err)
	}
}

// A hold may name a table as it is stored or as it is written in SQL, with or without its schema, but not by another
// table's name.
func TestNamesOfHeldTables(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(
		`CREATE SCHEMA elsewhere; CREATE TABLE "Mixed" (i integer); CREATE TABLE "with.dot" (i integer);
			CREATE TABLE "a""b" (i integer);
		CREATE TABLE "Both" (i integer); CREATE TABLE "both" (i integer); CREATE TABLE elsewhere.no (i integer);
		CREATE TABLE parts (i integer) PARTITION BY LIST (i); CREATE TABLE elsewhere.part PARTITION OF parts DEFAULT`,
	)
	for name, want := range map[string]string{
		"NmsDelivery":            "public.nmsdelivery",
		"PUBLIC.NmsDelivery":     "public.nmsdelivery",
		`"public"."nmsdelivery"`: "public.nmsdelivery",
		`public."nmsdelivery"`:   "public.nmsdelivery",
		`"nmsdelivery"`:          "public.nmsdelivery",
		"Mixed":                  `"public"."Mixed"`,
		"public.Mixed":           `"public"."Mixed"`,
		`"Mixed"`:                `"public"."Mixed"`,
		"mixed":                  "",
		`"mixed"`:                "",
		"with.dot":               `"public"."with.dot"`,
		`"public"."with.dot"`:    `"public"."with.dot"`,
		`a"b`:                    `"public"."a""b"`,
		`"a""b"`:                 `"public"."a""b"`,
		"Both":                   `"public"."Both"`,
		"public.Both":            `"public"."Both"`,
		"BOTH":                   "public.both",
		"both":                   "public.both",
		"parts":                  "public.parts",
		"part":                   "elsewhere.part",
		"elsewhere.part":         "elsewhere.part",
		`"elsewhere"."part"`:     "elsewhere.part",
		"elsewhere.no":           "",
		"no":                     "",
		"public.no":              "",
		"pg_catalog.pg_class":    "",
		"cleanupd.run":           "",
		"nmsdelivery; ":          "",
	} {
		out, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
			Hold: &cleanupv1.Hold{
				What:   &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: name}},
				Reason: "a",
			},
		})
		if want == "" {
			wantCode(t, err, codes.InvalidArgument)
		} else if err != nil || out.GetHold().GetTable().GetName() != want {
			t.Errorf("%s is %q, want %q: %v", name, out.GetHold().GetTable().GetName(), want, err)
		}
	}
}

// In a database without Campaign, a hold can name the tables of policies, and those that their foreign keys reach.
func TestHoldsOfTablesOfPolicies(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do("CREATE TABLE shop.note (line bigint REFERENCES shop.order_line ON DELETE CASCADE)")
	hold := func(table string) error {
		_, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{
			Reason: "a lawsuit", What: &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: table}},
		}})
		return err
	}
	for table, want := range map[string]string{
		"shop.note":  `no policy, and no foreign key to its table, reaches the table "shop.note"`,
		"shop.notes": `there is no table "shop.notes" (did you mean shop.note?)`,
	} {
		_, bad := wantCode(t, hold(table), codes.InvalidArgument)
		if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetDescription() != want {
			t.Errorf("%s: %v", table, v)
		}
	}
	if _, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: oldOrders()}); err != nil {
		t.Fatal(err)
	}
	if err := hold("shop.note"); err != nil {
		t.Errorf("the hold of a table that a policy reaches: %v", err)
	}
	_, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{Reason: "a lawsuit"}})
	_, bad := wantCode(t, err, codes.InvalidArgument)
	if v := bad.GetFieldViolations(); len(v) != 1 || strings.Contains(v[0].GetDescription(), "deliveries") {
		t.Errorf("a hold of nothing: %v", err)
	}
	ids := []int64{17}
	for field, h := range map[string]*cleanupv1.Hold{
		"hold.deliveries": {What: &cleanupv1.Hold_Deliveries{Deliveries: &cleanupv1.HeldRows{Ids: ids}}},
		"hold.lists":      {What: &cleanupv1.Hold_Lists{Lists: &cleanupv1.HeldRows{Ids: ids}}},
		"hold.workflows":  {What: &cleanupv1.Hold_Workflows{Workflows: &cleanupv1.HeldRows{Ids: ids}}},
		"hold.recipients": {What: &cleanupv1.Hold_Recipients{Recipients: &cleanupv1.HeldRows{Ids: ids}}},
	} {
		h.Reason = "a lawsuit"
		_, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: h})
		_, bad := wantCode(t, err, codes.InvalidArgument)
		if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != field {
			t.Errorf("a hold that nothing can honor: %v, want a violation of %s", err, field)
		}
	}
}

// A table stays on hold when it or one of its columns is renamed. Another table that gets its name is on hold as well,
// and the log and the list say so. They also say when a hold no longer retains anything.
func TestHoldsFollowTheirTables(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for kind, what := range map[string]string{
		"a table": `"table": {"name": "shop.order_line"}`,
		"rows":    `"rows": {"table": "shop.order_line", "columns": [{"column": "note", "value": "note 98"}]}`,
	} {
		s := shop(t)
		held := s.db.Int("SELECT count(*) FROM shop.order_line WHERE status = 'closed' AND placed < now() - "+
			"interval '730 days' AND ($1 OR note = 'note 98')", kind == "a table")
		setPolicy(t, s, oldOrders())
		if got := s.call(t, "POST", "/v1/holds", `{"reason": "a lawsuit", `+what+"}"); got.code != 200 {
			t.Fatalf("%s: %d %s", kind, got.code, got.body)
		}
		renamed := oldOrders()
		renamed.Name, renamed.Table = "renamed", "shop.former"
		for _, step := range []struct {
			change string
			policy *cleanupv1.Policy
			logged []string // the holds' messages
		}{
			{"ALTER TABLE shop.order_line RENAME TO former; ALTER TABLE shop.former RENAME note TO remark", renamed, nil},
			{
				"CREATE TABLE shop.order_line AS TABLE shop.former; ALTER TABLE shop.order_line RENAME remark TO note",
				oldOrders(),
				[]string{"is now shop.former, and this is another one"},
			},
			{"", renamed, nil},
			{"DROP TABLE shop.former", oldOrders(), []string{"was dropped, and this is another one"}},
		} {
			if step.change != "" {
				s.db.Do(step.change)
			}
			setPolicy(t, s, step.policy)
			events, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{
				Tasks: []string{"policy/" + step.policy.GetName()}, DryRun: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			var onHold int64
			for _, r := range dry.GetResults() {
				onHold += r.GetRowsOnHold()
			}
			if onHold != held || held == 0 {
				t.Errorf("%s, %s: %d rows of %s are on hold, want %d", kind, step.change, onHold, step.policy.GetTable(), held)
			}
			var said []string
			for _, e := range events {
				if strings.HasPrefix(e.GetLog().GetCode(), "HOLD_") {
					said = append(said, e.GetLog().GetMessage())
				}
			}
			if len(said) != len(step.logged) || (said != nil && !strings.Contains(said[0], step.logged[0])) {
				t.Errorf("%s, %s: the log has %q, want %q", kind, step.change, said, step.logged)
			}
			if step.logged != nil {
				checkHoldWarning(t, s, "HOLD_UNUSABLE", step.logged[0])
			}
		}
		s.db.Do("CREATE TABLE shop.other AS TABLE shop.order_line; DROP TABLE shop.order_line")
		other := oldOrders()
		other.Table = "shop.other"
		setPolicy(t, s, other)
		events, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"policy/old-orders"}, DryRun: true})
		code := map[string]string{"a table": "HOLD_OF_NO_TABLE", "rows": "HOLD_UNUSABLE"}[kind]
		if err != nil || (dry.GetResults()[0].GetRowsOnHold() > 0) != (kind == "rows") ||
			!slices.ContainsFunc(events, func(e *cleanupv1.RunEvent) bool { return e.GetLog().GetCode() == code }) {
			t.Errorf("%s, without the table: %v, %v", kind, events, err)
		}
		listed := map[string]string{"a table": "HOLD_OF_NO_TABLE", "rows": "HOLD_LOST"}[kind]
		checkHoldWarning(t, s, listed, "shop.order_line")
	}
}

// checkHoldWarning checks the warning of the only hold, as it is listed; "" for none.
func checkHoldWarning(t *testing.T, s *server, code, text string) {
	t.Helper()
	list, err := s.ListHolds(t.Context(), &cleanupv1.ListHoldsRequest{})
	if err != nil || len(list.GetHolds()) != 1 {
		t.Fatalf("holds %v, %v", list, err)
	}
	warnings := list.GetHolds()[0].GetWarnings()
	if code == "" && warnings == nil {
		return
	}
	if len(warnings) != 1 || warnings[0].GetCode() != code || !strings.Contains(warnings[0].GetText(), text) {
		t.Errorf("the hold is listed with %v, want %s with %q", warnings, code, text)
	}
}

// A hold of rows does not go over to another column that gets the name of its column: all rows are on hold then.
func TestHoldsOfRowsWhoseColumnWasReplaced(t *testing.T) {
	t.Parallel()
	const dropped = "ALTER TABLE shop.order_line DROP note, ADD note varchar(20)"
	for _, change := range suite.Size(suite.Long, []string{dropped}, []string{
		dropped,
		"ALTER TABLE shop.order_line RENAME note TO remark; ALTER TABLE shop.order_line ADD note varchar(20), DROP remark",
	}) {
		s := shop(t)
		setPolicy(t, s, oldOrders())
		if got := s.call(t, "POST", "/v1/holds", `{"reason": "a lawsuit",
			"rows": {"table": "shop.order_line", "columns": [{"column": "note", "value": "note 98"}]}}`); got.code != 200 {
			t.Fatalf("%d %s", got.code, got.body)
		}
		obsolete := s.db.Int("SELECT count(*) FROM shop.order_line WHERE status = 'closed' AND placed < now() - " +
			"interval '730 days'")
		checkHoldWarning(t, s, "", "")
		s.db.Do(change)
		checkHoldWarning(t, s, "HOLD_UNUSABLE", "its column note no longer exists")
		events, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true})
		if err != nil || dry.GetResults()[0].GetRowsOnHold() != obsolete || dry.GetResults()[0].GetRowsDeleted() != 0 {
			t.Errorf("%s: %v, %v; want %d rows on hold", change, dry.GetResults(), err, obsolete)
		}
		if !slices.ContainsFunc(events, func(e *cleanupv1.RunEvent) bool {
			return e.GetLog().GetCode() == "HOLD_UNUSABLE" && strings.Contains(e.GetLog().GetMessage(), "no longer exists")
		}) {
			t.Errorf("%s: the log does not say it: %v", change, events)
		}
	}
}

// A hold of rows is listed as it was checked, with the full name of its table, over REST, too. A run of a policy keeps
// its rows, an explanation says so, and the audit trail has it.
func TestHoldsOfRows(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do("CREATE TABLE shop.note (line bigint NOT NULL REFERENCES shop.order_line ON DELETE CASCADE); " +
		"INSERT INTO shop.note SELECT id FROM shop.order_line WHERE note = 'note 99'")
	s.db.Do("UPDATE shop.order_line SET note = 'note 98', status = 'closed' WHERE id % 2 = 0")
	setPolicy(t, s, oldOrders())
	const obsoleteLines = "FROM shop.order_line WHERE status = 'closed' AND placed < now() - interval '730 days'"
	obsolete := s.db.Int("SELECT count(*) " + obsoleteLines)
	kept := s.db.Int("SELECT count(*) " + obsoleteLines + " AND note = 'note 98'")
	got := s.call(t, "POST", "/v1/holds", `{"reason": "a lawsuit", "rows": {"table": "SHOP.order_line",
		"columns": [{"column": "NOTE", "value": "note 98"}, {"column": "status", "value": "closed"}]}}`)
	const held = `"rows":{"table":"shop.order_line", "columns":[{"column":"note", "value":"note 98"}, ` +
		`{"column":"status", "value":"closed"}]}`
	if got.code != 200 || !strings.Contains(strings.ReplaceAll(got.body, ", ", ","), strings.ReplaceAll(held, ", ", ",")) {
		t.Fatalf("%d %s", got.code, got.body)
	}
	now := s.db.Int("SELECT count(*) FROM shop.order_line WHERE note = 'note 98' AND status = 'closed'")
	if !strings.Contains(strings.ReplaceAll(got.body, " ", ""), fmt.Sprintf(`"rowsNow":"%d","warnings":[]`, now)) {
		t.Errorf("%s, want %d rows", got.body, now)
	}
	got = s.call(t, "POST", "/v1/holds", `{"reason": "a mistake", "rows": {"table": "shop.order_line",
		"columns": [{"column": "note", "value": "none"}]}}`)
	if got.code != 200 || !strings.Contains(got.body, "HOLD_OF_NO_ROWS") {
		t.Errorf("%d %s", got.code, got.body)
	}
	dry, run := approve(t, s, "policy/old-orders")
	for _, done := range []*cleanupv1.Run{dry, run} {
		if r := done.GetResults()[0]; r.GetRowsOnHold() != kept || r.GetRowsDeleted() != obsolete-kept {
			t.Errorf("%v, want %d rows on hold of %d", r, kept, obsolete)
		}
	}
	key := fmt.Sprint(s.db.Int("SELECT min(id) " + obsoleteLines + " AND note = 'note 98'"))
	row, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{
		Table: "shop.order_line", Key: []*cleanupv1.KeyColumn{{Value: key}},
	})
	if err != nil || row.GetVerdict() != cleanupv1.Verdict_VERDICT_RETAINED || !row.GetSteps()[0].GetOnHold() {
		t.Errorf("%v, %v", row, err)
	}
	if list := s.call(t, "GET", "/v1/holds", ""); !strings.Contains(list.body, "note 98") {
		t.Error(list.body)
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.audit WHERE details #>> '{rows,table}' = 'shop.order_line'"); n != 2 {
		t.Errorf("%d entries of the audit trail", n)
	}
}

// The answer to a hold of rows says which tables are retained with all rows, since the role cannot follow the hold, and
// the GRANT that would help, without what the role has.
func TestHoldThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Superuser(`CREATE TABLE shop.driver (id int PRIMARY KEY); INSERT INTO shop.driver VALUES (20);
		CREATE TABLE shop.trip (id int PRIMARY KEY, driver int REFERENCES shop.driver);
		CREATE TABLE shop.toll (trip int REFERENCES shop.trip, at timestamptz);
		GRANT SELECT ON shop.driver TO PUBLIC; GRANT SELECT, DELETE ON shop.toll TO PUBLIC`)
	setPolicy(t, s, &cleanupv1.Policy{
		Name: "tolls", Table: "shop.toll",
		OlderThan: &cleanupv1.OlderThan{Column: "at", Age: &cleanupv1.OlderThan_Days{Days: 30}},
	})
	out, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{
		Reason: "a test", What: &cleanupv1.Hold_Rows{Rows: &cleanupv1.HeldTableRows{
			Table: "shop.driver", Columns: []*cleanupv1.HeldColumn{{Column: "id", Value: "20"}},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if w := out.GetWarnings(); len(w) != 1 || w[0].GetCode() != message.HoldHidden.Code ||
		!strings.Contains(w[0].GetText(), `all rows of shop.toll are retained`) ||
		!strings.HasSuffix(w[0].GetText(), `: GRANT SELECT ON "shop"."trip" TO "neolane"`) {
		t.Errorf("the warnings are %v, want that all rows of toll are retained, and one GRANT", w)
	}
}

// A hold of rows that cannot be found, or that nothing would delete, is refused field by field.
func TestHoldsOfRowsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE TABLE shop.place (id int PRIMARY KEY, at point, since date, seen timestamptz, cost money);
		CREATE TABLE shop.note (at date, place int REFERENCES shop.place);
		CREATE TABLE shop.paid (id int PRIMARY KEY); CREATE VIEW shop.all_lines AS SELECT * FROM shop.order_line;
		CREATE TABLE shop.part (id int) PARTITION BY LIST (id); CREATE TABLE shop.part1 PARTITION OF shop.part DEFAULT`)
	setPolicy(t, s, oldOrders())
	setPolicy(t, s, &cleanupv1.Policy{Name: "notes", Table: "shop.note", OlderThan: olderThan("at", 1)})
	create := func(table string, columns ...*cleanupv1.HeldColumn) error {
		_, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{
			Reason: "a", What: &cleanupv1.Hold_Rows{Rows: &cleanupv1.HeldTableRows{Table: table, Columns: columns}},
		}})
		return err
	}
	is := func(column, value string) *cleanupv1.HeldColumn {
		return &cleanupv1.HeldColumn{Column: column, Value: value}
	}
	type columns = []*cleanupv1.HeldColumn
	many := slices.Repeat(columns{is("id", "1")}, 11)
	for name, c := range map[string]struct {
		table          string
		columns        columns
		field, problem string
	}{
		"no table":          {"", many[:1], "table", "no table"},
		"another table":     {"shop.orders", many[:1], "table", "no table"},
		"a NUL":             {"shop.order_line\x00", many[:1], "table", "no table"},
		"not a name":        {`shop.order_line"; DROP`, many[:1], "table", "no table"},
		"a view":            {"shop.all_lines", many[:1], "table", "is a view"},
		"a partition":       {"shop.part1", many[:1], "table", "is a partition of"},
		"nothing to keep":   {"shop.paid", many[:1], "table", "no task or policy"},
		"no columns":        {"shop.order_line", nil, "columns", "1 to 10"},
		"too many columns":  {"shop.order_line", many, "columns", "1 to 10"},
		"a column twice":    {"shop.order_line", many[:2], "columns[1].column", "twice"},
		"another column":    {"shop.order_line", columns{is("user", "1")}, "columns[0].column", "no column"},
		"a type, no order":  {"shop.place", columns{is("at", "(1,2)")}, "columns[0].column", "point"},
		"not a number":      {"shop.order_line", columns{is("id", "x")}, "columns[0].value", "invalid"},
		"not a uuid":        {"shop.order_line", columns{is("customer", "7")}, "columns[0].value", "invalid"},
		"a clock":           {"shop.place", columns{is("since", "today")}, "columns[0].value", "clock"},
		"no time zone":      {"shop.place", columns{is("seen", "2026-02-03")}, "columns[0].value", "time zone"},
		"an amount of cash": {"shop.place", columns{is("cost", "1,5")}, "columns[0].value", "lc_monetary"},
		"a value with NUL":  {"shop.order_line", columns{is("status", "\x00")}, "columns[0].value", "character"},
	} {
		err := create(c.table, c.columns...)
		_, bad := wantCode(t, err, codes.InvalidArgument)
		if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != "hold.rows."+c.field ||
			!strings.Contains(v[0].GetDescription(), c.problem) {
			t.Errorf("%s: %v, want %q of %s", name, v, c.problem, c.field)
		}
	}
	if err := create("shop.place", is("seen", "2026-02-03T16:05:00+01")); err != nil {
		t.Errorf("rows to which those of a policy refer: %v", err)
	}
	s.db.Superuser("CREATE TABLE shop.secret (id int PRIMARY KEY); " +
		"ALTER TABLE shop.note ADD secret int REFERENCES shop.secret")
	err := create("shop.secret", is("id", "1"))
	wantCode(t, err, codes.FailedPrecondition)
	if !strings.Contains(err.Error(), `GRANT SELECT ON "shop"."secret"`) {
		t.Error(err)
	}
	s.db.Do(`INSERT INTO cleanupd.hold (id, kind, ids, relation, schema_name, table_name, rows, not_covered, reason,
			created_by)
		SELECT gen_random_uuid(), kind, ids, relation, schema_name, table_name, rows, not_covered, reason, created_by
		FROM cleanupd.hold, generate_series(1, 99)`)
	_, bad := wantCode(t, create("shop.order_line", is("id", "1")), codes.InvalidArgument)
	if v := bad.GetFieldViolations(); len(v) != 1 || !strings.Contains(v[0].GetDescription(), "100 holds of rows") {
		t.Errorf("%v", v)
	}
}
