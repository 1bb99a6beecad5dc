package service_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/userdata"
)

// A call that panics ends with INTERNAL, over gRPC and REST, and the server goes on: here any call about user data
// panics, and so does the worker of erasures, because their pool is missing.
func TestCallsThatPanic(t *testing.T) {
	t.Parallel()
	s := serveForms(t, database(t), true, userdata.New(userdata.Config{}))
	client := cleanupv1.NewUserDataServiceClient(s.conn)
	_, unary := client.FindUserData(t.Context(), &cleanupv1.FindUserDataRequest{UserId: "ann"})
	_, stream := eraseAll(t, client, &cleanupv1.EraseUserDataRequest{UserId: "ann"})
	for name, err := range map[string]error{"unary": unary, "stream": stream} {
		wantCode(t, err, codes.Internal)
		if text := status.Convert(err).
			Message(); !strings.HasPrefix(text, "internal error (panic)") ||
			strings.Contains(text, "nil pointer") {
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
		if err != nil || answer.StatusCode != http.StatusInternalServerError ||
			!strings.Contains(string(body), "internal error (panic)") {
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

// A panic before a call's handler, here in its authentication because the guard is missing, ends only that call, too.
func TestAuthenticationThatPanics(t *testing.T) {
	t.Parallel()
	s := serveAs(t, database(t), true, nil, transport.Config{})
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

type told struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *told) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *told) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The log has the text of an unexpected error of the database, with the id that the caller gets; it is not sent to the
// caller.
func TestErrorsOfTheDatabaseStayInTheLog(t *testing.T) {
	t.Parallel()
	var log told
	s := serveAs(t, database(t), true, nil,
		transport.Config{Authenticator: &access.Authenticator{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s.db.Do("ALTER TABLE cleanupd.run RENAME COLUMN cause TO secret_cause")
	s.db.Do("ALTER TABLE cleanupd.schedule RENAME TO secret_schedule")
	var header metadata.MD
	_, err := s.ListRuns(t.Context(), &cleanupv1.ListRunsRequest{}, grpc.Header(&header))
	wantCode(t, err, codes.Internal)
	answer, failed := http.Get(s.url + "/v1/schedule")
	if failed != nil {
		t.Fatal(failed)
	}
	body, failed := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if failed != nil || answer.StatusCode != http.StatusInternalServerError {
		t.Errorf("%s %v", answer.Status, failed)
	}
	for _, text := range []string{status.Convert(err).Message(), string(body)} {
		if strings.Contains(text, "SQLSTATE") || strings.Contains(text, "secret") ||
			strings.Contains(text, "does not exist") ||
			!strings.Contains(text, "unexpected error") {
			t.Errorf("the caller is told %s", text)
		}
	}
	for _, id := range []string{header.Get("request-id")[0], answer.Header.Get("Request-Id")} {
		if !slices.ContainsFunc(strings.Split(log.String(), "\n"), func(line string) bool {
			return strings.Contains(line, id) && strings.Contains(line, "does not exist (SQLSTATE")
		}) {
			t.Errorf("the log does not tell of call %q: %s", id, log.String())
		}
	}
}
