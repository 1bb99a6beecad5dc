package service_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

func formsServer(t *testing.T) (*server, cleanupv1.UserDataServiceClient, *pgtest.DB) {
	t.Helper()
	return formsServerAs(t, transport.Config{Authenticator: &access.Authenticator{}})
}

func formsServerAs(t *testing.T, config transport.Config) (*server, cleanupv1.UserDataServiceClient, *pgtest.DB) {
	t.Helper()
	return formsServerOf(t, database(t), config)
}

// The database record is the one that the service cleans.
func formsServerOf(
	t *testing.T, record *pgtest.DB, config transport.Config,
) (*server, cleanupv1.UserDataServiceClient, *pgtest.DB) {
	t.Helper()
	formsDB := pgtest.Prepared(t, "forms", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, formsdb.Schema)
		return errors.Join(err, formsdb.Generate(rand.New(rand.NewPCG(1, 0)), 40, false).Load(ctx, conn, ""))
	})
	db := forms.PostgreSQL(formsDB.For(campaigndb.Role).Pool)
	t.Cleanup(db.Close)
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	own := func(ctx context.Context) error { return store.Own(ctx, record.Pool, "") }
	s := serveAs(t, record, false, userdata.New(userdata.Config{Forms: db, InDatabase: true, Own: own}), config)
	return s, cleanupv1.NewUserDataServiceClient(s.conn), formsDB
}

func eraseAll(
	t *testing.T, client cleanupv1.UserDataServiceClient, in *cleanupv1.EraseUserDataRequest,
) (events []*cleanupv1.EraseEvent, err error) {
	t.Helper()
	stream, err := client.EraseUserData(t.Context(), in)
	for err == nil {
		var m *cleanupv1.EraseUserDataResponse
		if m, err = stream.Recv(); err == nil {
			events = append(events, m.GetEvent())
		}
	}
	if errors.Is(err, io.EOF) {
		return events, nil
	}
	return events, err
}

// A server whose Forms database does not answer is not ready, nor is its UserDataService; the CleanupService is.
func TestReadinessOfForms(t *testing.T) {
	t.Parallel()
	s, _, formsDB := formsServer(t)
	check := func(code int, want map[string]healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		got := s.call(t, "GET", "/readyz", "")
		// the answer may be a second old
		for end := time.Now().Add(time.Minute); got.code != code && time.Now().Before(end); got = s.call(
			t, "GET", "/readyz", "",
		) {
			time.Sleep(50 * time.Millisecond)
		}
		if got.code != code || (code != 200 && !strings.Contains(got.body, "the Forms database does not answer")) {
			t.Errorf("/readyz: %d %s", got.code, got.body)
		}
		for name, status := range want {
			if got, err := healthv1.NewHealthClient(s.conn).
				Check(t.Context(), &healthv1.HealthCheckRequest{Service: name}); err != nil ||
				got.GetStatus() != status {
				t.Errorf("%q is %s, want %s: %v", name, got.GetStatus(), status, err)
			}
		}
	}
	const up, down = healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING
	check(200, map[string]healthv1.HealthCheckResponse_ServingStatus{
		"":                           up,
		"cleanup.v1.CleanupService":  up,
		"cleanup.v1.UserDataService": up,
	})
	formsDB.Cut()
	check(503, map[string]healthv1.HealthCheckResponse_ServingStatus{
		"":                           down,
		"cleanup.v1.CleanupService":  up,
		"cleanup.v1.UserDataService": down,
	})
}

func TestUserData(t *testing.T) {
	t.Parallel()
	s, client, _ := formsServer(t)
	variables := []*cleanupv1.WorkflowVariable{
		{Application: "Loans", Workflow: "folder/sub/review"},
		{Application: "Loans", Workflow: "apply", Variable: "photo"},
	}
	find := &cleanupv1.FindUserDataRequest{UserId: "ann", Variables: variables}
	found, err := client.FindUserData(t.Context(), find)
	if err != nil || len(found.GetPrincipalIds()) != 1 || len(found.GetProcessInstances()) == 0 ||
		len(found.GetOrphanTaskIds()) == 0 ||
		len(found.GetNotSearched()) != 1 ||
		len(found.GetBlindSpots()) < 3 {
		t.Fatalf("%v, %v", found, err)
	}
	erase := &cleanupv1.EraseUserDataRequest{UserId: "ann", Variables: variables, DryRun: true}
	foretold, err := eraseAll(t, client, erase)
	if err != nil || !foretold[len(foretold)-1].GetReceipt().GetDryRun() ||
		s.db.Int("SELECT count(*) FROM cleanupd.erasure") != 0 {
		t.Fatalf("%v, %v", foretold, err)
	}
	erase.DryRun = false
	events, err := eraseAll(t, client, erase)
	if err != nil {
		t.Fatal(err)
	}
	receipt := events[len(events)-1].GetReceipt()
	if !receipt.GetSucceeded() || len(receipt.GetTaskIds()) != len(found.GetOrphanTaskIds()) ||
		receipt.GetRequestedBy() == "" ||
		len(receipt.GetUserIdHash()) != 64 ||
		len(receipt.GetRows()) == 0 {
		t.Errorf("%v", receipt)
	}
	if found, err = client.FindUserData(t.Context(), find); err != nil || len(found.GetOrphanTaskIds()) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := eraseAll(t, client, &cleanupv1.EraseUserDataRequest{TaskIds: []string{"99999"}}); err != nil {
		t.Errorf("an id that is none: %v", err)
	}
	list, err := client.ListReceipts(t.Context(), &cleanupv1.ListReceiptsRequest{PageSize: 1})
	if err != nil || len(list.GetReceipts()) != 1 || list.GetReceipts()[0].GetTaskIds()[0] != "99999" {
		t.Fatalf("%v, %v", list, err)
	}
	list, err = client.ListReceipts(t.Context(), &cleanupv1.ListReceiptsRequest{PageToken: list.GetNextPageToken()})
	if err != nil || len(list.GetReceipts()) != 1 || list.GetReceipts()[0].GetId() != receipt.GetId() ||
		list.GetNextPageToken() != "" {
		t.Errorf("%v, %v", list, err)
	}
	verify := &cleanupv1.VerifyErasureRequest{ReceiptId: receipt.GetId(), UserId: "ann", Variables: variables}
	if v, err := client.VerifyErasure(
		t.Context(), verify,
	); err != nil || !v.GetReceipt().GetVerification().GetClean() ||
		v.GetReceipt().GetVerification().GetVerifyTime() == nil {
		t.Errorf("%v, %v", v, err)
	}
	if r, err := client.GetReceipt(t.Context(), &cleanupv1.GetReceiptRequest{ReceiptId: receipt.GetId()}); err != nil ||
		!r.GetReceipt().GetVerification().GetClean() {
		t.Errorf("%v, %v", r, err)
	}
	// Over REST.
	verified := s.call(t, http.MethodPost, "/v1/userdata/receipts/"+receipt.GetId()+":verify", `{"userId": "ann"}`)
	if verified.code != 200 || at(verified.lines[0], "receipt", "verification", "clean") != true {
		t.Errorf("%+v", verified)
	}
	one := s.call(t, http.MethodGet, "/v1/userdata/receipts/"+receipt.GetId(), "")
	if one.code != 200 || at(one.lines[0], "receipt", "id") != receipt.GetId() {
		t.Errorf("%+v", one)
	}
	for path, want := range map[string]int{
		"/v1/userdata/receipts/x":                                    404,
		"/v1/userdata/receipts/01a20895-0d6e-7d3c-8d7e-5a4fb3a0c111": 404,
	} {
		if got := s.call(t, http.MethodGet, path, ""); got.code != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for body, want := range map[string]int{`{"userId": "bob"}`: 400, `{}`: 400, `{"variables": [{}]}`: 400} {
		if got := s.call(
			t, http.MethodPost, "/v1/userdata/receipts/"+receipt.GetId()+":verify", body,
		); got.code != want {
			t.Errorf("%s: %+v", body, got)
		}
	}
	got := s.call(t, http.MethodPost, "/v1/userdata:find", `{"userId": "joanna"}`)
	if got.code != 200 || len(got.lines) != 1 || got.lines[0]["principalIds"] == nil ||
		got.lines[0]["blindSpots"] == nil {
		t.Errorf("%+v", got)
	}
	got = s.call(t, http.MethodPost, "/v1/userdata:erase", `{"userId": "joanna", "dryRun": true}`)
	if last := got.lines[len(got.lines)-1]; got.code != 200 ||
		at(last, "result", "event", "receipt", "dryRun") != true {
		t.Errorf("%+v", got)
	}
	got = s.call(t, http.MethodPost, "/v1/userdata:erase", `{"taskIds": ["99998"]}`)
	if last := got.lines[len(got.lines)-1]; got.code != 200 ||
		at(last, "result", "event", "receipt", "succeeded") != true {
		t.Errorf("%+v", got)
	}
	got = s.call(t, http.MethodGet, "/v1/userdata/receipts?page_size=2", "")
	if got.code != 200 || len(at(got.lines[0], "receipts").([]any)) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestUserDataErrors(t *testing.T) {
	t.Parallel()
	s, client, _ := formsServer(t)
	for _, c := range []struct {
		body string
		want codes.Code
		says string
	}{
		{`{}`, codes.InvalidArgument, "userId"},
		{`{"processInstanceIds": ["0"]}`, codes.InvalidArgument, "processInstanceIds[0]"},
		{`{"taskIds": ["1", "-5"]}`, codes.InvalidArgument, "taskIds[1]"},
		{`{"taskIds": ["1; DROP TABLE tb_task"]}`, codes.InvalidArgument, "taskIds[0]"},
		{`{"taskIds": ["1"], "userId": "ann"}`, codes.InvalidArgument, "beside ids"},
		{`{"taskIds": ["1"], "principalIds": ["P0"]}`, codes.InvalidArgument, "beside ids"},
		{`{"variables": [{"application": "Loans", "workflow": "apply"}]}`, codes.InvalidArgument, "userId"},
		{`{"userId": "ann", "variables": [{}]}`, codes.InvalidArgument, "variables[0].application"},
		{`{"userId": "a\u0000b"}`, codes.InvalidArgument, "NUL"},
		{`{"userId": "ann", "principalIds": ["P3"]}`, codes.InvalidArgument, "principalIds"},
		{`{"userId": "bob"}`, codes.FailedPrecondition, "choose among them by their ids: [P100 P2]"},
		{
			`{"userId": "ann", "variables": [{"application": "Loans", "workflow": "nowhere"}]}`, codes.NotFound,
			"nowhere",
		},
		{
			`{"userId": "ann", "variables": [{"application": "Loans", "workflow": "apply", "variable": "applicant\"; DROP ` +
				`TABLE tb_task; --"}]}`,
			codes.NotFound, "DROP",
		},
	} {
		got := s.call(t, http.MethodPost, "/v1/userdata:erase", c.body)
		message, _ := at(got.lines[0], "error", "message").(string)
		if at(got.lines[0], "error", "code") != float64(c.want) || !strings.Contains(message, c.says) {
			t.Errorf("%s: %+v", c.body, got)
		}
	}
	if s.db.Int("SELECT count(*) FROM cleanupd.erasure") != 0 {
		t.Error("an erasure was stored that was refused")
	}
	if _, err := client.FindUserData(
		t.Context(), &cleanupv1.FindUserDataRequest{},
	); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
	for _, in := range []*cleanupv1.ListReceiptsRequest{{PageSize: -1}, {PageToken: "x"}} {
		if _, err := client.ListReceipts(t.Context(), in); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", in, err)
		}
	}
}

// Without a Forms database there is no user data, whatever is called.
func TestUserDataWithoutForms(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	for method := range rpcs {
		if service := method.Parent().Name(); service == "UserDataService" {
			err := shown{}.overGRPC(t.Context(), s.conn, call{rpc: string(service + "/" + method.Name())})
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%s: %v", method.Name(), err)
			}
		}
	}
}

func sweepAll(
	t *testing.T, client cleanupv1.UserDataServiceClient, dryRun bool,
) (events []*cleanupv1.EraseEvent, err error) {
	t.Helper()
	stream, err := client.SweepDocuments(t.Context(), &cleanupv1.SweepDocumentsRequest{DryRun: dryRun})
	for err == nil {
		var m *cleanupv1.SweepDocumentsResponse
		if m, err = stream.Recv(); err == nil {
			events = append(events, m.GetEvent())
		}
	}
	if errors.Is(err, io.EOF) {
		return events, nil
	}
	return events, err
}

func TestSweepDocuments(t *testing.T) {
	t.Parallel()
	s, client, formsDB := formsServer(t)
	formsDB.Do(
		"DELETE FROM tb_dm_session_reference WHERE sessionid LIKE '_wf%'; INSERT INTO tb_dm_chunk VALUES ('stale', " +
			"0, ''); INSERT INTO tb_dm_session_reference VALUES ('stale', '_wfattach999999')",
	)
	formsDB.Do("INSERT INTO tb_task (id) VALUES (1000000)")
	if events, err := sweepAll(t, client, false); err != nil || len(events) != 3 || !strings.Contains(
		events[0].GetLog().GetMessage(), "1 sessions name",
	) ||
		len(events[2].GetReceipt().GetProblems()) != 1 {
		t.Errorf("%v %v", events, err)
	}
	s.db.Do("UPDATE cleanupd.dead_session SET found_time = found_time - interval '1 hour'")
	for _, dryRun := range []bool{true, false} {
		events, err := sweepAll(t, client, dryRun)
		if err != nil || len(events) != 3 || events[0].GetDocumentErased().GetDocumentId() != "stale" ||
			events[0].GetDocumentErased().GetSessionIds()[0] != "_wfattach999999" {
			t.Fatalf("%v %v", events, err)
		}
		if text := events[1].GetLog().
			GetMessage(); !strings.Contains(text, `of the session "-1"`) ||
			!strings.Contains(text, "without a session") {
			t.Errorf("the log says %q", text)
		}
		if r := events[2].GetReceipt(); !r.GetSucceeded() || !r.GetSweep() || r.GetDryRun() != dryRun ||
			len(r.GetRows()) != 2 {
			t.Errorf("%v", r)
		}
		if n := formsDB.Int("SELECT count(*) FROM tb_dm_chunk WHERE documentid = 'stale'"); (n == 1) != dryRun {
			t.Errorf("dry run %t: %d chunks", dryRun, n)
		}
	}
	got := s.call(t, http.MethodPost, "/v1/userdata:sweep", "{}")
	if last := got.lines[len(got.lines)-1]; got.code != 200 || at(last, "result", "event", "receipt", "sweep") != true {
		t.Errorf("%+v", got)
	}
	// A document that a trigger keeps fails the sweep after its receipt.
	formsDB.Do(
		`INSERT INTO tb_dm_chunk VALUES ('stale', 0, ''); INSERT INTO tb_dm_session_reference
			VALUES ('stale', '_wfattach999999');
		CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER keep BEFORE DELETE ON tb_dm_chunk FOR EACH ROW EXECUTE FUNCTION keep()`,
	)
	if _, err := sweepAll(t, client, false); err != nil {
		t.Error(err)
	}
	s.db.Do("UPDATE cleanupd.dead_session SET found_time = found_time - interval '1 hour'")
	events, err := sweepAll(t, client, false)
	wantCode(t, err, codes.Internal)
	if len(events) != 3 || !strings.Contains(events[0].GetLog().GetMessage(), "stale are retained") ||
		formsDB.Int("SELECT count(*) FROM tb_dm_session_reference WHERE documentid = 'stale'") != 1 {
		t.Errorf("%v", events)
	}
	// Without a document storage.
	db := forms.PostgreSQL(formsDB.For(campaigndb.Role).Pool)
	t.Cleanup(db.Close)
	blind := serveForms(t, database(t), true, userdata.New(userdata.Config{Forms: db}))
	_, err = sweepAll(t, cleanupv1.NewUserDataServiceClient(blind.conn), false)
	wantCode(t, err, codes.FailedPrecondition)
}

// An erasure that retains something fails after its receipt. The status has room for a few problems, the receipt for
// all of them.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	_, client, formsDB := formsServer(t)
	formsDB.Do(`INSERT INTO tb_task SELECT i, 1, 'P0', 0 FROM generate_series(1000001, 1000007) i;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not this one''; END';
			CREATE TRIGGER refuse BEFORE DELETE ON tb_task FOR EACH ROW EXECUTE FUNCTION refuse()`)
	events, err := eraseAll(t, client,
		&cleanupv1.EraseUserDataRequest{TaskIds: formsDB.Strings("SELECT id::text FROM tb_task WHERE id > 1000000")})
	wantCode(t, err, codes.Internal)
	told := status.Convert(err).Message()
	if receipt := events[len(events)-1].GetReceipt(); len(receipt.GetProblems()) != 7 ||
		strings.Count(told, "not this one") != 5 ||
		!strings.HasSuffix(told, "and 2 more: see the receipt") {
		t.Errorf("%s; %v", told, receipt)
	}
}

// nobody is a stream with only a context.
type nobody[M any] struct {
	grpc.ServerStreamingServer[M]
	ctx context.Context
}

func (n nobody[M]) Context() context.Context { return n.ctx }

// If another instance owns the service's database by now, the Forms database is not used, not even to find data.
func TestUserDataOfAnotherInstance(t *testing.T) {
	t.Parallel()
	foreign := errors.New("another instance's")
	s := service.NewUserData(t.Context(),
		userdata.New(userdata.Config{Own: func(context.Context) error { return foreign }}))
	for name, call := range map[string]func() error{
		"find": func() error {
			_, err := s.FindUserData(t.Context(), &cleanupv1.FindUserDataRequest{UserId: "bob"})
			return err
		},
		"erase": func() error {
			return s.EraseUserData(&cleanupv1.EraseUserDataRequest{
				UserId: "bob",
				DryRun: true,
			}, nobody[cleanupv1.EraseUserDataResponse]{ctx: t.Context()})
		},
		"sweep": func() error {
			return s.SweepDocuments(&cleanupv1.SweepDocumentsRequest{DryRun: true},
				nobody[cleanupv1.SweepDocumentsResponse]{ctx: t.Context()})
		},
		"verify": func() error {
			_, err := s.VerifyErasure(t.Context(), &cleanupv1.VerifyErasureRequest{ReceiptId: "x"})
			return err
		},
	} {
		if err := call(); !errors.Is(err, foreign) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
