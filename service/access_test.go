package service_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"golang.org/x/oauth2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/internal/testca"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
)

type call struct {
	rpc          string // SERVICE/METHOD
	role         access.Role
	request      proto.Message // nil: an empty one
	method, path string
	body         string
}

// Every RPC, with the lowest role that the API documents.
var calls = []call{
	{rpc: "CleanupService/RunCleanup", role: access.Operator, method: "POST", path: "/v1/runs", body: "{}"},
	{
		rpc:     "CleanupService/RunCleanup",
		role:    access.Viewer,
		request: &cleanupv1.RunCleanupRequest{DryRun: true},
		method:  "POST",
		path:    "/v1/runs",
		body:    `{"dryRun":true}`,
	},
	{rpc: "CleanupService/WatchRun", role: access.Viewer, method: "GET", path: "/v1/runs/x/events"},
	{rpc: "CleanupService/GetRun", role: access.Viewer, method: "GET", path: "/v1/runs/x"},
	{rpc: "CleanupService/ListRuns", role: access.Viewer, method: "GET", path: "/v1/runs"},
	{rpc: "CleanupService/CancelRun", role: access.Operator, method: "POST", path: "/v1/runs/x:cancel"},
	{
		rpc: "CleanupService/SetPace", role: access.Operator, method: "POST", path: "/v1/runs/x:pace",
		body: `{"pace": "PACE_FAST"}`,
	},
	{rpc: "CleanupService/PauseRun", role: access.Operator, method: "POST", path: "/v1/runs/x:pause"},
	{rpc: "CleanupService/ResumeRun", role: access.Operator, method: "POST", path: "/v1/runs/x:resume"},
	{rpc: "CleanupService/ListTasks", role: access.Viewer, method: "GET", path: "/v1/tasks"},
	{rpc: "InsightService/ListTables", role: access.Viewer, method: "GET", path: "/v1/tables"},
	{rpc: "CleanupService/GetOptions", role: access.Viewer, method: "GET", path: "/v1/options"},
	{rpc: "CleanupService/SetOptions", role: access.Admin, method: "PATCH", path: "/v1/options", body: "{}"},
	{rpc: "CleanupService/GetSchedule", role: access.Viewer, method: "GET", path: "/v1/schedule"},
	{rpc: "CleanupService/SetSchedule", role: access.Admin, method: "PUT", path: "/v1/schedule", body: "{}"},
	{
		rpc:    "InsightService/ListRemoteDeliveries",
		role:   access.Viewer,
		method: "GET",
		path:   "/v1/mid-sourcing/leftovers",
	},
	{rpc: "InsightService/ExplainTask", role: access.Viewer, method: "GET", path: "/v1/tasks/x:explain"},
	{rpc: "InsightService/ExplainRow", role: access.Viewer, method: "GET", path: "/v1/explain?table=x&key=1"},
	{rpc: "GuardService/GetGuards", role: access.Admin, method: "GET", path: "/v1/guards"},
	{rpc: "GuardService/SetGuards", role: access.Admin, method: "PUT", path: "/v1/guards", body: "{}"},
	{rpc: "GuardService/CreateHold", role: access.Admin, method: "POST", path: "/v1/holds", body: "{}"},
	{rpc: "GuardService/ListHolds", role: access.Admin, method: "GET", path: "/v1/holds"},
	{rpc: "GuardService/ReleaseHold", role: access.Admin, method: "POST", path: "/v1/holds/x:release"},
	{rpc: "PolicyService/ListPolicies", role: access.Viewer, method: "GET", path: "/v1/policies"},
	{rpc: "PolicyService/GetPolicy", role: access.Viewer, method: "GET", path: "/v1/policies/x"},
	{rpc: "PolicyService/SetPolicy", role: access.Admin, method: "PUT", path: "/v1/policies/x", body: "{}"},
	{rpc: "PolicyService/DeletePolicy", role: access.Admin, method: "DELETE", path: "/v1/policies/x"},
	{rpc: "PolicyService/GetPolicyGrants", role: access.Admin, method: "POST", path: "/v1/policies:grants", body: "{}"},
	{rpc: "InsightService/GetForecast", role: access.Viewer, method: "GET", path: "/v1/forecast"},
	{rpc: "ServerService/WhoAmI", role: access.Viewer, method: "GET", path: "/v1/whoami"},
	{rpc: "ServerService/GetServer", role: access.Viewer, method: "GET", path: "/v1/server"},
	{rpc: "ServerService/ListAudit", role: access.Admin, method: "GET", path: "/v1/audit"},
	{rpc: "RestoreService/ListTrash", role: access.Viewer, method: "GET", path: "/v1/trash"},
	{rpc: "RestoreService/RestoreTrash", role: access.Admin, method: "POST", path: "/v1/trash:restore", body: "{}"},
	{rpc: "RestoreService/PurgeTrash", role: access.Admin, method: "POST", path: "/v1/trash:purge", body: "{}"},
	{rpc: "UserDataService/FindUserData", role: access.Admin, method: "POST", path: "/v1/userdata:find", body: "{}"},
	{rpc: "UserDataService/EraseUserData", role: access.Admin, method: "POST", path: "/v1/userdata:erase", body: "{}"},
	{
		rpc:     "UserDataService/EraseUserData",
		role:    access.Admin,
		request: &cleanupv1.EraseUserDataRequest{DryRun: true},
		method:  "POST",
		path:    "/v1/userdata:erase",
		body:    `{"dryRun":true}`,
	},
	{rpc: "UserDataService/SweepDocuments", role: access.Admin, method: "POST", path: "/v1/userdata:sweep", body: "{}"},
	{rpc: "UserDataService/ListFormsPurges", role: access.Admin, method: "GET", path: "/v1/forms/purges"},
	{
		rpc:    "UserDataService/SetFormsPurge",
		role:   access.Admin,
		method: "PUT",
		path:   "/v1/forms/purges/loans",
		body:   "{}",
	},
	{rpc: "UserDataService/DeleteFormsPurge", role: access.Admin, method: "DELETE", path: "/v1/forms/purges/loans"},
	{
		rpc:    "UserDataService/VerifyErasure",
		role:   access.Admin,
		method: "POST",
		path:   "/v1/userdata/receipts/x:verify",
		body:   "{}",
	},
	{rpc: "UserDataService/GetReceipt", role: access.Admin, method: "GET", path: "/v1/userdata/receipts/x"},
	{rpc: "UserDataService/ListReceipts", role: access.Admin, method: "GET", path: "/v1/userdata/receipts"},
}

// Credentials of a caller, and the expected result.
type shown struct {
	name          string
	role          access.Role // Nobody: see denied
	denied        codes.Code  // whatever is called; OK: it depends on the role
	authorization []string
	renewed       func() string // returns the only authorization, a new one for each call; nil if it does not change
	certificate   *tls.Certificate
	header        string // pretends to be the gateway
}

type issuer struct {
	url string
	key *rsa.PrivateKey

	mu         sync.Mutex
	challenges map[string]string // of a code
}

var issuerKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := issuerKey()
	if err != nil {
		t.Fatal(err)
	}
	server := &oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "one", Algorithm: oidc.RS256}},
	}
	i := &issuer{key: key, challenges: map[string]string{}}
	mux := http.NewServeMux()
	mux.Handle("/", server)
	mux.HandleFunc("GET /auth", i.authorize)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) { i.token(t, w, r) })
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	server.SetIssuer(web.URL)
	i.url = web.URL
	return i
}

// Everyone who asks for PKCE may sign in, and the browser goes back with a code.
func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("response_type") != "code" || q.Get("client_id") != "console" ||
		q.Get("code_challenge_method") != "S256" ||
		q.Get("state") == "" {
		http.Error(w, "not a request for a code with PKCE: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.mu.Lock()
	i.challenges[code] = q.Get("code_challenge")
	i.mu.Unlock()
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(),
		http.StatusFound)
}

// token returns JWTs of an admin for the refresh token, or for a code with the verifier of its challenge. A code is
// accepted once.
func (i *issuer) token(t *testing.T, w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	challenge, known := i.challenges[r.FormValue("code")]
	delete(i.challenges, r.FormValue("code"))
	i.mu.Unlock()
	verified := known && oauth2.S256ChallengeFromVerifier(r.FormValue("code_verifier")) == challenge
	if !verified && r.FormValue("refresh_token") != "refresh" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error": "invalid_grant"}`)
		return
	}
	bare := func(claims map[string]any) string { return strings.TrimPrefix(i.jwt(t, i.key, claims), "Bearer ") }
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"token_type": "Bearer", "expires_in": 3600, "refresh_token": "refresh",
		"access_token": bare(map[string]any{"roles": "admin"}), "id_token": bare(map[string]any{"aud": "console"}),
	})
}

// Some claims have valid defaults.
func (i *issuer) jwt(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": i.url, "aud": "cleanupd", "sub": "jane", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + oidctest.SignIDToken(key, "one", oidc.RS256, string(text))
}

// Each token is named after its role.
func tokenFile(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	for _, role := range []string{"viewer", "operator", "admin"} {
		fmt.Fprintf(&text, "%s the-%s %x\n", role, role, sha256.Sum256([]byte("secret-"+role)))
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// All kinds of callers, with valid and invalid credentials.
func everyone(t *testing.T, ca *testca.CA, i *issuer) []shown {
	t.Helper()
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	cert := func(c tls.Certificate) *tls.Certificate { return &c }
	forged, err := json.Marshal(access.Caller{Subject: "forged", Role: access.Admin})
	if err != nil {
		t.Fatal(err)
	}
	return []shown{
		{name: "nothing", denied: codes.Unauthenticated},
		{name: "nothing, as if it were the gateway", denied: codes.Unauthenticated, header: string(forged)},
		{
			name:          "viewer's token, as if it were the gateway",
			role:          access.Viewer,
			authorization: []string{"Bearer secret-viewer"},
			header:        string(forged),
		},
		{name: "viewer's token", role: access.Viewer, authorization: []string{"Bearer secret-viewer"}},
		{name: "operator's token", role: access.Operator, authorization: []string{"bearer secret-operator"}},
		{name: "admin's token", role: access.Admin, authorization: []string{"Bearer secret-admin"}},
		{name: "wrong token", denied: codes.Unauthenticated, authorization: []string{"Bearer secret-nobody"}},
		{name: "empty token", denied: codes.Unauthenticated, authorization: []string{"Bearer "}},
		{
			name:          "hash as a token",
			denied:        codes.Unauthenticated,
			authorization: []string{fmt.Sprintf("Bearer %x", sha256.Sum256([]byte("secret-admin")))},
		},
		{name: "another scheme", denied: codes.Unauthenticated, authorization: []string{"Basic secret-admin"}},
		{
			name:          "two tokens",
			denied:        codes.Unauthenticated,
			authorization: []string{"Bearer secret-viewer", "Bearer secret-admin"},
		},
		{
			name:          "wrong token beside a good certificate",
			denied:        codes.Unauthenticated,
			authorization: []string{"Bearer secret-nobody"},
			certificate:   cert(ca.Client("ops")),
		},

		{
			name:          "viewer's JWT",
			role:          access.Viewer,
			authorization: []string{i.jwt(t, i.key, map[string]any{"roles": "viewer"})},
		},
		{
			name:          "operator's JWT",
			role:          access.Operator,
			authorization: []string{i.jwt(t, i.key, map[string]any{"roles": []string{"viewer", "operator", "other"}})},
		},
		{name: "admin's JWT, just expired by our clock", role: access.Admin, renewed: func() string {
			return i.jwt(t, i.key, map[string]any{"roles": "admin", "exp": time.Now().Add(-20 * time.Second).Unix()})
		}},
		{name: "JWT without a role", denied: codes.PermissionDenied, authorization: []string{i.jwt(t, i.key, nil)}},
		{
			name:   "expired JWT",
			denied: codes.Unauthenticated,
			authorization: []string{
				i.jwt(t, i.key, map[string]any{"roles": "admin", "exp": time.Now().Add(-time.Hour).Unix()}),
			},
		},
		{
			name:          "JWT for another audience",
			denied:        codes.Unauthenticated,
			authorization: []string{i.jwt(t, i.key, map[string]any{"roles": "admin", "aud": "other"})},
		},
		{
			name:          "JWT of another issuer",
			denied:        codes.Unauthenticated,
			authorization: []string{i.jwt(t, i.key, map[string]any{"roles": "admin", "iss": "http://127.0.0.1:1"})},
		},
		{
			name:          "JWT signed by a stranger",
			denied:        codes.Unauthenticated,
			authorization: []string{i.jwt(t, stranger, map[string]any{"roles": "admin"})},
		},
		{
			name:   "JWT of tomorrow",
			denied: codes.Unauthenticated,
			authorization: []string{
				i.jwt(t, i.key, map[string]any{"roles": "admin", "nbf": time.Now().Add(time.Hour).Unix()}),
			},
		},
		{
			name:   "JWT that begins in two minutes",
			denied: codes.Unauthenticated,
			renewed: func() string {
				return i.jwt(t, i.key, map[string]any{"roles": "admin", "nbf": time.Now().Add(2 * time.Minute).Unix()})
			},
		},
		{
			name:          "JWT that begins beyond all integers",
			denied:        codes.Unauthenticated,
			authorization: []string{i.jwt(t, i.key, map[string]any{"roles": "admin", "nbf": 1e30})},
		},
		{
			name: "viewer's JWT that begins just now by the issuer's clock",
			role: access.Viewer,
			authorization: []string{
				i.jwt(t, i.key, map[string]any{"roles": "viewer", "nbf": time.Now().Add(40 * time.Second).Unix()}),
			},
		},
		{
			name:          "JWT without a subject",
			denied:        codes.Unauthenticated,
			authorization: []string{i.jwt(t, i.key, map[string]any{"roles": "admin", "sub": nil})},
		},
		{
			name:          "JWT with an empty subject",
			denied:        codes.Unauthenticated,
			authorization: []string{i.jwt(t, i.key, map[string]any{"roles": "admin", "sub": ""})},
		},

		{name: "viewer's certificate", role: access.Viewer, certificate: cert(ca.Client("grafana"))},
		{
			name:        "operator's certificate, by its DNS name",
			role:        access.Operator,
			certificate: cert(ca.Client("somebody", "other.example", "ops.example")),
		},
		{
			name:        "operator's certificate, by its IP address",
			role:        access.Operator,
			certificate: cert(ca.Client("somebody", "other.example", "2001:db8::1")),
		},
		{name: "admin's certificate", role: access.Admin, certificate: cert(ca.Client("root"))},
		{name: "certificate without a role", denied: codes.PermissionDenied, certificate: cert(ca.Client("somebody"))},
		{
			name:        "certificate of another authority",
			denied:      codes.Unauthenticated,
			certificate: cert(testca.New(t).Client("root")),
		},
		{name: "server's certificate", denied: codes.Unauthenticated, certificate: cert(ca.Server())},
	}
}

func guarded(t *testing.T, ca *testca.CA, i *issuer) *server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	certFile, keyFile := ca.Files(ca.Server())
	authenticator, err := access.Open(t.Context(), access.Config{
		Log:      log,
		ClientCA: ca.File(),
		ClientRoles: []string{
			"grafana=viewer", "ops.example=operator", "2001:db8::1=operator", "ops=operator", "root=admin",
		},
		TokenFile: tokenFile(t),
		Issuer:    i.url,
		Audience:  "cleanupd",
	})
	if err != nil {
		t.Fatal(err)
	}
	own, err := access.ServerTLS(log, certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return serveAs(t, database(t), false, nil, transport.Config{Authenticator: authenticator, TLS: own})
}

func (s shown) tls(ca *testca.CA) *tls.Config {
	config := &tls.Config{RootCAs: ca.Pool()}
	if s.certificate != nil {
		config.Certificates = []tls.Certificate{*s.certificate}
	}
	return config
}

// overGRPC returns how a call begins: io.EOF or nil if it was admitted.
func (s shown) overGRPC(ctx context.Context, conn *grpc.ClientConn, c call) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, value := range s.authorization {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", value)
	}
	if s.header != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "cleanupd-caller-bin", s.header, "cleanupd-caller", s.header)
	}
	name := "/cleanup.v1." + c.rpc
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(strings.ReplaceAll(name[1:], "/", ".")))
	if err != nil {
		return err
	}
	method := found.(protoreflect.MethodDescriptor)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name)
	if err != nil {
		return err
	}
	request := c.request
	if request == nil {
		request = dynamicpb.NewMessage(method.Input())
	}
	if err := errors.Join(stream.SendMsg(request), stream.CloseSend()); err != nil {
		return err
	}
	return stream.RecvMsg(dynamicpb.NewMessage(method.Output()))
}

func (s shown) overREST(t *testing.T, client *http.Client, url string, c call) int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, c.method, url+c.path, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header["Authorization"] = s.authorization
	if s.header != "" {
		r.Header.Set("Cleanupd-Caller-Bin", s.header)
		r.Header.Set("Grpc-Metadata-Cleanupd-Caller-Bin", s.header)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusUnauthorized && answer.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
	return answer.StatusCode
}

// rpcs yields all RPCs of the API.
func rpcs(yield func(protoreflect.MethodDescriptor) bool) {
	protoregistry.GlobalFiles.RangeFilesByPackage("cleanup.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if !yield(methods.Get(j)) {
					return false
				}
			}
		}
		return true
	})
}

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	for method := range rpcs {
		name := string(method.Parent().Name()) + "/" + string(method.Name())
		if !slices.ContainsFunc(calls, func(c call) bool { return c.rpc == name }) {
			t.Errorf("who may call %s is not tested", name)
		}
	}
	ca, i := testca.New(t), newIssuer(t)
	s := guarded(t, ca, i)
	beside := []call{ // only over HTTP
		{role: access.Viewer, method: "GET", path: "/metrics"},
		{role: access.Viewer, method: "GET", path: "/openapi.json"},
		{role: access.Viewer, method: "GET", path: "/v1/nothing"},
		{role: access.Nobody, method: "GET", path: "/healthz"},
		{role: access.Nobody, method: "GET", path: "/readyz"},
	}
	// who makes each call in the quick suite, too: what is denied over gRPC and over REST, the rest by turns
	thorough := []string{"nothing", "viewer's token", "operator's token"}
	for place, who := range everyone(t, ca, i) {
		conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(credentials.NewTLS(who.tls(ca))))
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: who.tls(ca), ForceAttemptHTTP2: true}}
		for turn, c := range append(calls, beside...) {
			if (place+turn)%16 > 0 && !slices.Contains(thorough, who.name) && !suite.Long.Requested() {
				continue
			}
			if who.renewed != nil {
				who.authorization = []string{who.renewed()}
			}
			want := codes.OK // or any error that is about the call itself
			switch {
			case c.role == access.Nobody:
			case who.denied != codes.OK:
				want = who.denied
			case who.role < c.role:
				want = codes.PermissionDenied
			}
			overBoth := suite.Long.Requested() || want != codes.OK || c.rpc == ""
			if c.rpc != "" && (overBoth || turn%2 == 0) {
				got := status.Code(who.overGRPC(t.Context(), conn, c))
				if (got == codes.Unauthenticated || got == codes.PermissionDenied || want != codes.OK) && got != want {
					t.Errorf("%s with %s: %s, want %s", c.rpc, who.name, got, want)
				}
			}
			if !overBoth && turn%2 == 0 {
				continue
			}
			status := map[codes.Code]int{codes.OK: 0, codes.Unauthenticated: 401, codes.PermissionDenied: 403}[want]
			got := who.overREST(t, client, s.url, c)
			if (got == 401 || got == 403 || status > 0) && got != status {
				t.Errorf("%s %s with %s: %d, want %d", c.method, c.path, who.name, got, status)
			}
		}
		client.CloseIdleConnections()
		_ = conn.Close()
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.audit WHERE subject = 'forged'"); n != 0 {
		t.Errorf("%d acts of a forged caller", n)
	}
	if n := s.db.Int(
		"SELECT count(*) FROM cleanupd.audit WHERE role = 'viewer' AND result = 'PERMISSION_DENIED' AND rpc = " +
			"'CleanupService/SetOptions'",
	); n == 0 {
		t.Error("what a viewer tried to do is not written down")
	}
}

// guardedClient returns a guarded server, a client of it, and a context by the name of a token.
func guardedClient(t *testing.T) (s *server, client cleanupd.Client, as func(who string) context.Context) {
	t.Helper()
	ca, i := testca.New(t), newIssuer(t)
	s = guarded(t, ca, i)
	conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(credentials.NewTLS(shown{}.tls(ca))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, cleanupd.NewClient(conn), func(who string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret-"+who)
	}
}

// Viewers may cancel dry runs that they have started, but no other run.
func TestWhoMayCancel(t *testing.T) {
	t.Parallel()
	s, client, as := guardedClient(t)
	for who, started := range map[string]struct {
		dry  bool
		want codes.Code
	}{
		"viewer":   {true, codes.OK},
		"operator": {true, codes.PermissionDenied},
		"admin":    {false, codes.PermissionDenied},
	} {
		stream, err := client.RunCleanup(as(who),
			&cleanupv1.RunCleanupRequest{DryRun: started.dry, Tasks: []string{"visitors"}, Detach: true})
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CancelRun(as("viewer"), &cleanupv1.CancelRunRequest{RunId: first.GetEvent().GetRunId()})
		if status.Code(err) != started.want {
			t.Errorf("a viewer cancels the run of %s: %v", who, err)
		}
		// since only two dry runs may be active
		s.db.Until("SELECT (count(*) = 0)::int FROM cleanupd.run WHERE state IN ('QUEUED', 'RUNNING')")
	}
}

// Reflection and health follow the rules, too.
func TestReflectionAsksWhoCalls(t *testing.T) {
	t.Parallel()
	ca, i := testca.New(t), newIssuer(t)
	s := guarded(t, ca, i)
	conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(credentials.NewTLS(shown{}.tls(ca))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ask := func(ctx context.Context) error { return reflects(ctx, conn) }
	wantCode(t, ask(t.Context()), codes.Unauthenticated)
	if err := ask(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret-viewer")); err != nil {
		t.Error(err)
	}
	if err := healthy(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	ca, i := testca.New(t), newIssuer(t)
	s := guarded(t, ca, i)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: shown{}.tls(ca)}}
	ask := func(who, method, path, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer secret-"+who)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	ask("admin", "PATCH", "/v1/options", `{"rejectsPurgeDelayDays":77}`)
	ask("admin", "PATCH", "/v1/options", `{"rejectsPurgeDelayDays":0}`)
	ask("operator", "PATCH", "/v1/options", `{"rejectsPurgeDelayDays":78}`)
	ask("admin", "PUT",
		"/v1/schedule", `{"cron":"5 4 * * *","moreCrons":["30 12 * * `+
			`*"],"timeZone":"UTC","enabled":true,"continueOnError":false}`)
	ask("operator", "POST", "/v1/runs", `{"tasks":["rejects"]}`)
	ask("operator", "POST", "/v1/runs", `{"tasks":["import-rejects"]}`)
	run := s.db.Strings("SELECT id::text FROM cleanupd.run")[0]
	ask("operator", "POST", "/v1/runs/"+run+":cancel", "")
	ask("admin", "POST", "/v1/userdata:find", `{"userId":"jane.doe"}`)
	s.db.Until("SELECT (count(*) >= 8)::int FROM cleanupd.audit")
	got := s.db.Strings(
		"SELECT concat_ws(' ', subject, role, by, address, rpc, result, details) FROM cleanupd.audit ORDER BY id")
	want := []string{
		`token:the-admin admin token 127.0.0.1 CleanupService/SetOptions OK {"rejects_purge_delay_days": {"to": 77, ` +
			`"from": 180}}`,
		`token:the-admin admin token 127.0.0.1 CleanupService/SetOptions INVALID_ARGUMENT {}`,
		`token:the-operator operator token 127.0.0.1 CleanupService/SetOptions PERMISSION_DENIED {}`,
		`token:the-admin admin token 127.0.0.1 CleanupService/SetSchedule OK {"to": "5 4 * * * and 30 12 * * * UTC, ` +
			`until a task fails", "from": "none"}`,
		`token:the-operator operator token 127.0.0.1 CleanupService/RunCleanup INVALID_ARGUMENT {}`,
		`token:the-operator operator token 127.0.0.1 CleanupService/RunCleanup OK {"tasks": ["import-rejects"], ` +
			`"run_id": "` + run + `"}`,
		`token:the-operator operator token 127.0.0.1 CleanupService/CancelRun OK {"run_id": "` + run + `"}`,
		`token:the-admin admin token 127.0.0.1 UserDataService/FindUserData FAILED_PRECONDITION {}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if by := s.db.Strings("SELECT requested_by FROM cleanupd.run"); by[0] != "token:the-operator" {
		t.Errorf("requested by %s", by[0])
	}
}

// A change that cannot be recorded is not made.
func TestNoChangeWithoutAudit(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do("ALTER TABLE cleanupd.audit ADD CHECK (result <> 'OK')")
	_, _, err := s.run(t, &cleanupv1.RunCleanupRequest{})
	wantCode(t, err, codes.Internal)
	if n := s.db.Int("SELECT count(*) FROM cleanupd.run"); n != 0 {
		t.Error("the run was started")
	}
}

// However often a caller is refused, the audit and the log say so once, and later how often.
func TestRefusalsFillNothing(t *testing.T) {
	t.Parallel()
	authenticator, err := access.Open(t.Context(), access.Config{TokenFile: tokenFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	var log lines
	s := serveAs(t, database(t), true, nil,
		transport.Config{Authenticator: authenticator, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for token, want := range map[string]codes.Code{
		"secret-viewer": codes.PermissionDenied,
		"secret-nobody": codes.Unauthenticated,
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		for range 200 {
			_, err := s.SetOptions(ctx, &cleanupv1.SetOptionsRequest{})
			wantCode(t, err, want)
			if got := s.call(t, "PATCH", "/v1/options", "{}", "Authorization", "Bearer "+token); got.code != 401 &&
				got.code != 403 {
				t.Errorf("%d %s", got.code, got.body)
			}
		}
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.audit"); n != 1 {
		t.Errorf("%d rows in the audit", n)
	}
	if n := log.n.Load(); n != 4 { // of the viewer: audit and call; of nobody: over gRPC and over REST
		t.Errorf("%d lines in the log", n)
	}
}

// The log has the same details of a call as the audit.
func TestAuditInTheLog(t *testing.T) {
	t.Parallel()
	var (
		log    bytes.Buffer
		stored string
	)
	t.Cleanup(func() { // when the server has ended
		if text := log.String(); strings.Contains(text, "by=") || strings.Count(text, "msg=audit") != 2 ||
			strings.Count(text, "details=") != 1 {
			t.Errorf("a field that is empty: %s", text)
		}
		_, text, _ := strings.Cut(log.String(), "details=")
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			t.Fatalf("%v in %s", err, log.String())
		}
		text, _ = strconv.Unquote(quoted)
		var logged, want any
		if err := errors.Join(
			json.Unmarshal([]byte(text), &logged), json.Unmarshal([]byte(stored), &want),
		); err != nil ||
			!reflect.DeepEqual(logged, want) {
			t.Errorf("%s is logged, and %s stored: %v", text, stored, err)
		}
	})
	s := serveAs(t, database(t), true, nil,
		transport.Config{Authenticator: &access.Authenticator{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	setPolicy(t, s, &cleanupv1.Policy{
		Name: "audit", Table: "XtkAudit", OlderThan: olderThan("tsChanged", 30),
	})
	stored = s.db.Strings("SELECT details::text FROM cleanupd.audit WHERE rpc = 'PolicyService/SetPolicy'")[0]
	_, err := s.DeletePolicy(t.Context(), &cleanupv1.DeletePolicyRequest{Name: "nothing"})
	wantCode(t, err, codes.NotFound)
}

type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}

// Viewers see which columns a policy compares and assigns, but not the values: not in policies, explanations, previews,
// events or errors. Masked values cannot be stored.
func TestViewersSeeNoValuesOfPolicies(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	s := guarded(t, ca, newIssuer(t))
	conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(credentials.NewTLS(shown{}.tls(ca))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := cleanupd.NewClient(conn)
	as := func(role string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret-"+role)
	}
	s.db.Do(`CREATE TABLE person (id int PRIMARY KEY, at timestamptz, email text, name text);
		INSERT INTO person VALUES (1, '2000-01-01', 'jane "j" @example.org', 'Jane Roe')`)
	const secret, assigned = `jane "j" @example.org`, "somebody else"
	_, err = client.SetPolicy(as("admin"), &cleanupv1.SetPolicyRequest{Policy: &cleanupv1.Policy{
		Name:      "person",
		Table:     "public.person",
		Enabled:   true,
		OlderThan: olderThan("at", 30),
		Filters: []*cleanupv1.Filter{
			{Column: "email", Op: cleanupv1.FilterOp_FILTER_OP_EQUAL, Values: []string{secret}},
		},
		Assign: []*cleanupv1.Assign{{Column: "name", Value: proto.String(assigned)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	dryRun := func(role string) []proto.Message {
		stream, err := client.RunCleanup(as(role),
			&cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"policy/person"}})
		events, err := drain(t, stream, err)
		if err != nil {
			t.Fatal(err)
		}
		var all []proto.Message
		for _, e := range events {
			all = append(all, e)
		}
		return all
	}
	dryRun("admin")
	answers := func(role string) string {
		var text strings.Builder
		add := func(m proto.Message, err error) {
			if err != nil {
				t.Errorf("%s: %v", role, err)
			}
			text.WriteString(protojson.Format(m) + "\n")
		}
		policy, err := client.GetPolicy(as(role), &cleanupv1.GetPolicyRequest{Name: "person"})
		add(policy, err)
		list, err := client.ListPolicies(as(role), &cleanupv1.ListPoliciesRequest{})
		add(list, err)
		task, err := client.ExplainTask(as(role), &cleanupv1.ExplainTaskRequest{Task: "policy/person"})
		add(task, err)
		row, err := client.ExplainRow(as(role), &cleanupv1.ExplainRowRequest{
			Table: "public.person", Key: []*cleanupv1.KeyColumn{{Column: "id", Value: "1"}},
		})
		add(row, err)
		runs, err := client.ListRuns(as(role), &cleanupv1.ListRunsRequest{})
		add(runs, err)
		run, err := client.GetRun(as(role), &cleanupv1.GetRunRequest{RunId: runs.GetRuns()[0].GetId()})
		add(run, err)
		tables, err := client.ListTables(as(role), &cleanupv1.ListTablesRequest{})
		add(tables, err)
		tasks, err := client.ListTasks(as(role), &cleanupv1.ListTasksRequest{})
		add(tasks, err)
		forecast, err := client.GetForecast(as(role), &cleanupv1.GetForecastRequest{})
		add(forecast, err)
		for _, e := range dryRun(role) {
			add(e, nil)
		}
		return text.String()
	}
	for role, sees := range map[string]bool{"viewer": false, "operator": true} {
		got := answers(role)
		for _, value := range []string{"@example.org", assigned} {
			if strings.Contains(got, value) != sees {
				t.Errorf("%s sees %q: %t: %s", role, value, !sees, got)
			}
		}
		if !strings.Contains(got, "email") || !strings.Contains(got, `\"public\".\"person\"`) {
			t.Errorf("%s sees no column, or no table: %s", role, got)
		}
	}
	seen, err := client.GetPolicy(as("viewer"), &cleanupv1.GetPolicyRequest{Name: "person"})
	if err != nil || seen.GetPolicy().GetMaskedValues() != 2 || seen.GetPolicy().GetEtag() != "" {
		t.Errorf("%v, %v", seen, err)
	}
	_, err = client.SetPolicy(as("admin"), &cleanupv1.SetPolicyRequest{Policy: seen.GetPolicy()})
	if _, bad := wantCode(t, err, codes.InvalidArgument); !strings.Contains(bad.String(), "masked_values") {
		t.Errorf("%v", err)
	}
}

// The rate of a viewer's dry runs is limited, since each is stored for days. Others have no limit.
func TestRateOfDryRuns(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	s := guarded(t, ca, newIssuer(t))
	conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(credentials.NewTLS(shown{}.tls(ca))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	dryRun := func(role string) error {
		stream, err := cleanupd.NewClient(conn).RunCleanup(
			metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret-"+role),
			&cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"visitors"}})
		_, err = drain(t, stream, err)
		return err
	}
	for begun, started := time.Now(), 0; ; started++ {
		err := dryRun("viewer")
		if err == nil {
			if most := 11 + int(time.Since(begun)/(10*time.Second)); started >= most {
				t.Fatalf("a viewer has started %d dry runs in %s", started+1, time.Since(begun))
			}
			continue
		}
		wantCode(t, err, codes.ResourceExhausted)
		details := status.Convert(err).Details()
		if started < 10 || len(details) != 1 {
			t.Fatalf("after %d dry runs: %v", started, err)
		}
		if retry, ok := details[0].(*errdetails.RetryInfo); !ok || retry.GetRetryDelay().AsDuration() > 11*time.Second {
			t.Errorf("%v", details)
		}
		break
	}
	for range 12 {
		if err := dryRun("operator"); err != nil {
			t.Fatal(err)
		}
	}
}
