package service_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/userdata"
)

// A call that panics ends with INTERNAL, over gRPC and REST, and the server goes on: here any call about user data panics, and so
// does the work on erasures, for want of a pool.
func TestCallsThatPanic(t *testing.T) {
	t.Parallel()
	s := serveForms(t, pgtest.Campaign(t), true, userdata.New(userdata.Config{}))
	client := cleanupv1.NewUserDataServiceClient(s.conn)
	_, unary := client.FindUserData(t.Context(), &cleanupv1.FindUserDataRequest{UserId: "ann"})
	_, stream := eraseAll(t, client, &cleanupv1.EraseUserDataRequest{UserId: "ann"})
	for name, err := range map[string]error{"unary": unary, "stream": stream} {
		wantCode(t, err, codes.Internal)
		if text := status.Convert(err).Message(); !strings.HasPrefix(text, "cleanupd itself") || strings.Contains(text, "nil pointer") {
			t.Errorf("%s: %s", name, text)
		}
	}
	for _, path := range []string{"find", "erase"} {
		answer, err := http.Post(s.url+"/v1/userdata:"+path, "application/json", strings.NewReader(`{"userId": "ann"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), "cleanupd itself") {
			t.Errorf("%s: %s %s %v", path, answer.Status, body, err)
		}
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.audit WHERE result = 'INTERNAL'"); n != 4 {
		t.Errorf("%d of 4 calls are in the audit as failed", n)
	}
	if _, err := s.ListTasks(t.Context(), &cleanupv1.ListTasksRequest{}); err != nil {
		t.Error(err)
	}
}

// A panic before a call's handler, here in its authentication for want of a guard, ends the call alone, too.
func TestAuthenticationThatPanics(t *testing.T) {
	t.Parallel()
	s := serveAs(t, pgtest.Campaign(t), true, nil, service.ServerConfig{})
	for range 2 {
		_, err := s.ListTasks(t.Context(), &cleanupv1.ListTasksRequest{})
		wantCode(t, err, codes.Internal)
	}
	_, _, err := s.run(t, &cleanupv1.RunCleanupRequest{})
	wantCode(t, err, codes.Internal)
	answer, err := http.Get(s.url + "/v1/tasks")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusInternalServerError {
		t.Error(answer.Status)
	}
}

// A response that has begun when its handler panics is cut off, so that nobody takes it for a whole one.
func TestResponseThatPanics(t *testing.T) {
	t.Parallel()
	for begun, want := range map[string]int{"": http.StatusInternalServerError, `{"half":`: http.StatusOK} {
		web := httptest.NewServer(service.Surviving(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if begun != "" {
				_, _ = io.WriteString(w, begun)
				_ = http.NewResponseController(w).Flush()
			}
			panic("PLANTED")
		})))
		answer, err := http.Get(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		web.Close()
		if answer.StatusCode != want || (err != nil) != (begun != "") || strings.Contains(string(body), "PLANTED") {
			t.Errorf("%q: %s, %v: %s", begun, answer.Status, err, body)
		}
	}
}
