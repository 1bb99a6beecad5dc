package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// Tables of the demo's database that tasks cover, made by hand from docs/reference/tasks.md.
const coveredTables = `
cusbroadlogstore         deliveries expired-deliveries delivery-logs
custrackinglogstore      deliveries tracking-logs
grp%                     lists-to-delete orphan-work-tables
nmsaddress               npai addresses
nmsappsubscriptionrcp    app-subscriptions
nmsattachments           deliveries
nmsbatchevent            expired-events
nmsbroadlogbatchevent    deliveries expired-deliveries delivery-logs
nmsbroadlogmid           deliveries expired-deliveries delivery-logs
nmsbroadlogop            deliveries expired-deliveries delivery-logs
nmsbroadlogrcp           deliveries expired-deliveries delivery-logs
nmsbroadlogrtevent       deliveries expired-deliveries delivery-logs
nmsbroadlogsvc           deliveries expired-deliveries delivery-logs
nmsbroadlogvisitor       deliveries expired-deliveries delivery-logs
nmscouponvalue           deliveries
nmsdelivery              deliveries expired-deliveries mirror-pages
nmsdeliverylogstats      deliveries
nmsdeliverypart          deliveries expired-deliveries
nmsdeliverystat          deliveries
nmsdlvexclusion          deliveries
nmsemailerror            email-errors
nmsemailerrorstat        email-error-stats
nmseventhisto            expired-events
nmsexcludelogrcp         deliveries delivery-logs
nmsgroup                 lists-to-delete
nmsmirrorpageinfo        deliveries mirror-pages
nmsmirrorpagesearch      deliveries mirror-pages
nmsmxdomain              mx-domains
nmspropositionrcp        deliveries propositions
nmspropositionvisitor    deliveries propositions
nmsprovidermsgid         deliveries delivery-logs
nmsrcpgrprel             lists-to-delete
nmsremamatchrcp          reactions
nmsrtevent               expired-events
nmssubscription          subscriptions
nmstrackinglogbatchevent deliveries tracking-logs
nmstrackinglogrcp        deliveries tracking-logs
nmstrackinglogrtevent    deliveries tracking-logs
nmstrackinglogsvc        deliveries tracking-logs
nmstrackinglogvisitor    deliveries tracking-logs
nmstrackingstats         deliveries tracking-logs
nmstrackingurl           deliveries
nmsvisitor               visitors
nmswebtrackinglog        deliveries tracking-logs
wkdlv\_%                 work-tables workflow-instances
wkf%                     workflow-instances
wkfhisto%                workflow-instances
wksimu\_%                simulation-tables
xtkaudit                 audit-trail
xtkjoblog                deliveries
xtkreject                import-rejects
xtksessioninfo           sessions
xtkworkflowevent         workflow-instances
xtkworkflowlog           workflow-instances
xtkworkflowlogin         workflow-logins
xtkworkflowtask          workflow-instances
`

const uncoveredTables = `nmsbroadlogeventhisto nmsbroadlogmsg nmsdeliverymapping nmsextaccount nmsmobileapp
	nmsremahypothesis nmsservice nmssimulation nmstrackinglogeventhisto xtkjob xtkoperatorgroup xtkoption xtkworkflow`

// Every table of the demo's database is listed, with the tasks that cover it, and the reasons why work tables are
// retained: also that they are on hold, without showing the hold.
func TestTablesAndTheirTasks(t *testing.T) {
	t.Parallel()
	db := filled(t)
	db.Do(`INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (520, 13), (521, 20), (522, 99);
		CREATE TABLE wkf520_1 AS SELECT generate_series(1, 100000) AS i; CREATE TABLE wkf520_2 (i int);
		CREATE TABLE wkf521_1 (i int); CREATE TABLE wkf522_1 (i int); CREATE VIEW wkf520_3 AS SELECT 1`)
	db.Do("ANALYZE wkf520_1")
	s := serve(t, db, true)
	all, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(coveredTables)) {
		words := strings.Fields(line)
		want["public."+words[0]] = words[1:]
	}
	for _, name := range strings.Fields(uncoveredTables) {
		want["public."+name] = nil
	}
	byName := map[string]*cleanupv1.Table{}
	for _, table := range all.GetTables() {
		got[table.GetName()] = table.GetCoveredBy()
		byName[table.GetName()] = table
		if table.GetSuggestion() != nil {
			t.Errorf("a policy is suggested for %s", table.GetName())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string][]string{
		"public.wkf%": {
			"2 workflow 520 is paused", "1 list 500002 exists", "1 workflow 12 is started",
			"1 workflow 522 is in state 99",
		},
		"public.wkfhisto%": {"1 workflow 12 exists"},
		`public.wkdlv\_%`:  {"1 delivery 500001 is in progress"},
		"public.grp%":      {"1 list 500002 exists"},
		`public.wksimu\_%`: {"1 simulation 16 exists"},
	} {
		var retained []string
		for _, r := range byName[name].GetRetained() {
			retained = append(retained, fmt.Sprintf("%d %s", r.GetTables(), r.GetReason()))
		}
		if state := db.Strings("SELECT iState::text FROM XtkWorkflow WHERE iWorkflowId = 12"); state[0] != "11" {
			t.Fatalf("workflow 12 is in state %v", state)
		}
		slices.Sort(retained)
		slices.Sort(want)
		if diff := cmp.Diff(want, retained); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	wantSources := map[string]cleanupv1.DateSource{
		"tsevent":        cleanupv1.DateSource_DATE_SOURCE_STATISTICS,
		"tslastmodified": cleanupv1.DateSource_DATE_SOURCE_INDEX,
	}
	dates := byName["public.nmsbroadlogrcp"].GetDateColumns()
	for deadline := time.Now().Add(time.Minute); ; { // on a busy machine an index may not be read in time
		sources := map[string]cleanupv1.DateSource{}
		for _, c := range dates {
			sources[c.GetColumn()] = c.GetSource()
			if !c.GetOldestTime().AsTime().Before(c.GetNewestTime().AsTime()) {
				t.Errorf("%v", c)
			}
		}
		diff := cmp.Diff(wantSources, sources)
		if diff == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(diff)
		}
		again, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range again.GetTables() {
			if table.GetName() == "public.nmsbroadlogrcp" {
				dates = table.GetDateColumns()
			}
		}
	}
	wkf := byName["public.wkf%"]
	if first := wkf.GetRetained()[0]; wkf.GetTableCount() != 8 || first.GetReason() != "workflow 520 is paused" ||
		first.GetBytes() < 100_000*28 {
		t.Errorf("%v", wkf)
	}
	if _, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{
		Reason: "secret",
		What:   &cleanupv1.Hold_Workflows{Workflows: &cleanupv1.HeldRows{Ids: []int64{99001}}},
	}}); err != nil {
		t.Fatal(err)
	}
	held := s.call(t, "GET", "/v1/tables", "")
	if held.code != 200 || strings.Count(held.body, `"on hold"`) != 2 || strings.Contains(held.body, "secret") {
		t.Errorf("%d, %d tables are on hold", held.code, strings.Count(held.body, `"on hold"`))
	}
}

// The order is by name, or the greatest first; a page continues where the previous one ended, also if its last table is
// dropped.
func TestTablesInOrder(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := filled(t)
	s := serve(t, db, true)
	less := map[cleanupv1.TableOrder]func(a, b *cleanupv1.Table) bool{
		cleanupv1.TableOrder_TABLE_ORDER_NAME: func(a, b *cleanupv1.Table) bool { return a.GetName() < b.GetName() },
		cleanupv1.TableOrder_TABLE_ORDER_ROWS: func(a, b *cleanupv1.Table) bool { return a.GetRows() > b.GetRows() },
		cleanupv1.TableOrder_TABLE_ORDER_BYTES: func(a, b *cleanupv1.Table) bool {
			return a.GetBytes()+a.GetIndexBytes() > b.GetBytes()+b.GetIndexBytes()
		},
		cleanupv1.TableOrder_TABLE_ORDER_GROWTH: func(_, _ *cleanupv1.Table) bool { return false }, // unknown yet
	}
	for order, less := range less {
		names := map[string]bool{}
		var last *cleanupv1.Table
		for token, pages := "", 0; pages == 0 || token != ""; pages++ {
			page, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{
				PageSize: 7, PageToken: token, OrderBy: order, View: cleanupv1.TableView_TABLE_VIEW_BASIC,
			})
			if err != nil || len(page.GetTables()) > 7 || pages > 20 {
				t.Fatalf("%v, %v", page, err)
			}
			for _, table := range page.GetTables() {
				if names[table.GetName()] || (last != nil && less(table, last)) ||
					(last != nil && !less(last, table) && table.GetName() < last.GetName()) {
					t.Errorf("%v: %s follows %s", order, table.GetName(), last.GetName())
				}
				names[table.GetName()], last = true, table
			}
			token = page.GetNextPageToken()
		}
		if len(names) != 69 {
			t.Errorf("%v: %d tables", order, len(names))
		}
	}
	db.Do("CREATE TABLE aaa (i int); CREATE TABLE aab (i int)")
	first, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{PageSize: 1})
	if err != nil || first.GetTables()[0].GetName() != "public.aaa" {
		t.Fatalf("%v, %v", first, err)
	}
	db.Do("DROP TABLE aaa")
	second, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{
		PageSize: 1, PageToken: first.GetNextPageToken(),
	})
	if err != nil || second.GetTables()[0].GetName() != "public.aab" {
		t.Errorf("%v, %v", second, err)
	}
}

// A table that no task covers is listed as such; one that a task skips for now, such as for a missing column, is not.
// Work tables of other owners, and all if nothing shows who uses them, are retained.
func TestTablesThatStay(t *testing.T) {
	t.Parallel()
	db := database(t)
	other := db.Role("other")
	db.Do(`CREATE TABLE cusorders (id int); ALTER TABLE XtkAudit DROP tsChanged;
		CREATE TABLE wkf1_1 (i int); CREATE TABLE wkf2_1 (i int); CREATE MATERIALIZED VIEW wkf3_1 AS SELECT 1`)
	db.Superuser("ALTER TABLE wkf2_1 OWNER TO " + other)
	s := serve(t, db, true)
	uncovered, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{
		UncoveredOnly: true, View: cleanupv1.TableView_TABLE_VIEW_BASIC,
	})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, table := range uncovered.GetTables() {
		found = found || table.GetName() == "public.cusorders"
		if len(table.GetCoveredBy()) > 0 {
			t.Errorf("%v", table)
		}
	}
	if !found {
		t.Errorf("the table of orders is not among those that no task covers: %v", uncovered)
	}
	if got := s.call(t, "GET", "/v1/tables?uncoveredOnly=true&orderBy=TABLE_ORDER_BYTES", ""); got.code != 200 ||
		!strings.Contains(got.body, `"public.cusorders"`) || strings.Contains(got.body, `"public.xtkaudit"`) {
		t.Errorf("%d %.1000s", got.code, got.body)
	}
	if _, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: "xtkaudit"}); status.Code(err) !=
		codes.InvalidArgument { // only the key is missing
		t.Error(err)
	}
	all, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, table := range all.GetTables() {
		if table.GetName() == "public.xtkaudit" && !slices.Equal(table.GetCoveredBy(), []string{"audit-trail"}) {
			t.Errorf("%v", table)
		}
		for _, r := range table.GetRetained() {
			reasons = append(reasons, r.GetReason())
		}
	}
	slices.Sort(reasons)
	if len(reasons) != 3 || reasons[0] != "XtkWorkflow has no row: it is unknown which tables are in use" ||
		!strings.Contains(reasons[1], "a materialized view") || !strings.Contains(reasons[2], other) {
		t.Errorf("%q", reasons)
	}
}

// Wrong requests name their fields, over gRPC and REST.
func TestWrongRequestsOfTables(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	page, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{PageSize: 1})
	if err != nil || page.GetNextPageToken() == "" {
		t.Fatalf("%v, %v", page, err)
	}
	for field, request := range map[string]*cleanupv1.ListTablesRequest{
		"page_size":  {PageSize: -1},
		"page_token": {PageToken: "x"},
		"order_by":   {OrderBy: 99},
		"view":       {View: -7},
	} {
		_, err := s.ListTables(t.Context(), request)
		if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err = s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{
		PageToken: page.GetNextPageToken(), OrderBy: cleanupv1.TableOrder_TABLE_ORDER_ROWS,
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a token of another order: %v", err)
	}
	for _, query := range []string{
		"pageSize=-1", "pageToken=x", "orderBy=AGE", "orderBy=99", "view=99", "uncoveredOnly=7",
	} {
		if got := s.call(t, "GET", "/v1/tables?"+query, ""); got.code != 400 {
			t.Errorf("%s: %d %s", query, got.code, got.body)
		}
	}
}

// A database without Campaign's tables has tables, too. If two schemas have them, it is not known which one is cleaned.
func TestTablesOfOtherDatabases(t *testing.T) {
	t.Parallel()
	db := bare(t)
	db.Do("CREATE SCHEMA shop; CREATE TABLE shop.orders (id int); CREATE TABLE wkf12_1 (i int)")
	s := serve(t, db, true)
	got, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{})
	if err != nil || len(got.GetTables()) != 2 || got.GetTables()[1].GetName() != "shop.orders" {
		t.Errorf("%v, %v", got, err)
	}
	db.Do("CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE a.nmsdelivery (i int); CREATE TABLE b.nmsdelivery (i int)")
	if _, err = s.ListTables(
		t.Context(), &cleanupv1.ListTablesRequest{},
	); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("with two schemas: %v", err)
	}
}
