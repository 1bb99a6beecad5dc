package service_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// A repeated request streams the run that the first one started, while it is active and after its end, over gRPC and
// over REST; the same id with another request is rejected. So does a repeated request for a saved plan.
func TestRepeatedRequest(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), false)
	s.db.Do("INSERT INTO XtkReject (iRejectId, tsLog) SELECT i, '2000-01-01' FROM generate_series(1, 10) i")
	id := uuid.NewString()
	request := func() *cleanupv1.RunCleanupRequest {
		return &cleanupv1.RunCleanupRequest{Tasks: []string{"import-rejects"}, RequestId: id}
	}
	tx := s.db.Hold("LOCK TABLE XtkReject IN SHARE MODE") // the first run stays active
	active := request()
	active.Detach = true
	first, _, err := s.run(t, active)
	if err != nil {
		t.Fatal(err)
	}
	started := first[0].GetRunId()
	again, _, err := s.run(t, active)
	if err != nil || again[0].GetRunId() != started {
		t.Errorf("a repeated request of an active run: %v, %v", again, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, run, err := s.run(t, request())
	if err != nil || run.GetId() != started || events[0].GetSequence() != 1 {
		t.Errorf("a repeated request that waits for the end: run %s, not %s: %v", run.GetId(), started, err)
	}
	got := s.call(t, http.MethodPost, "/v1/runs", `{"tasks": ["import-rejects"], "requestId": "`+id+`"}`)
	last := got.lines[len(got.lines)-1]
	if at(last, "result", "event", "runFinished", "run", "id") != started {
		t.Errorf("over REST: %+v", got)
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.run"); n != 1 {
		t.Errorf("%d runs were stored", n)
	}

	other := request()
	other.ContinueOnError = true
	_, _, err = s.run(t, other)
	if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != "request_id" {
		t.Errorf("another request with the same id: %v", bad)
	}
	for _, wrong := range []string{"x", uuid.Nil.String()} {
		_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{RequestId: wrong})
		if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != "request_id" {
			t.Errorf("the id %q: %v", wrong, bad)
		}
	}
	if got := s.call(t, http.MethodPost, "/v1/runs", `{"requestId": "x"}`); got.code != http.StatusBadRequest {
		t.Errorf("the id x over REST: %+v", got)
	}

	// The server completes the tasks and the id of a saved plan.
	s.db.Do("INSERT INTO XtkReject (iRejectId, tsLog) SELECT i, '2000-01-01' FROM generate_series(1, 10) i")
	_, plan, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"import-rejects"}, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	planned := &cleanupv1.RunCleanupRequest{Plan: strings.ToUpper(plan.GetId()), RequestId: uuid.NewString()}
	_, run, err = s.run(t, planned)
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := s.run(t, planned); err != nil || again.GetId() != run.GetId() {
		t.Errorf("run %s of a plan, and then run %s: %v", run.GetId(), again.GetId(), err)
	}

	s.db.Do("UPDATE cleanupd.run SET create_time = create_time - interval '25 hours'")
	if _, run, err := s.run(t, other); err != nil || run.GetId() == started {
		t.Errorf("the id after a day: %v, %v", run, err)
	}
}

// Of many equal requests at the same time, one starts a run, and all watch it.
func TestRepeatedRequestsAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), false)
	for _, dry := range []bool{false, true} {
		id := uuid.NewString()
		var wg sync.WaitGroup
		ids := make(chan string, 20)
		for range cap(ids) {
			wg.Go(func() {
				stream, err := s.RunCleanup(t.Context(),
					&cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}, DryRun: dry, RequestId: id})
				if err == nil {
					if m, recvErr := stream.Recv(); recvErr == nil {
						ids <- m.GetEvent().GetRunId()
						for err == nil {
							_, err = stream.Recv()
						}
						return
					}
				}
				ids <- "failed"
			})
		}
		wg.Wait()
		first := <-ids
		for range cap(ids) - 1 {
			if other := <-ids; other != first {
				t.Errorf("dry run %t: run %s and run %s", dry, first, other)
			}
		}
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.run"); n != 2 {
		t.Errorf("%d runs were stored", n)
	}
}
