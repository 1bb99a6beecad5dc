package service_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs/eventlog"
)

// Streams that have sent events which the database lost end with DATA_LOSS, over gRPC and REST, and say from where to
// watch again. New streams are sent the events that replaced them. If the run itself is lost, they end with NOT_FOUND.
func TestALogThatIsReplaced(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	events := func(from, to, generation int) {
		s.db.Do(
			`INSERT INTO cleanupd.event (run_id, sequence, generation, body)
				SELECT id, i, $3, '{"Kind": "log", "Message": "x"}'
				FROM cleanupd.run, generate_series($1::bigint, $2) AS i`,
			from,
			to,
			generation,
		)
	}
	running, err := s.RunCleanup(t.Context(), &cleanupv1.RunCleanupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s.db.Until("SELECT count(*) FROM cleanupd.run")
	id := s.db.Strings("SELECT id::text FROM cleanupd.run")[0]
	events(1, 5, 7)
	events(6, 9, 8)
	rest, err := http.Get(s.url + "/v1/runs/" + id + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rest.Body.Close() }()
	lines := bufio.NewScanner(rest.Body)
	for i := range 9 {
		if m, err := running.Recv(); err != nil ||
			m.GetEvent().GetLogGeneration() != map[bool]int64{true: 7, false: 8}[i < 5] {
			t.Fatalf("%v, %v", m, err)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), `"logGeneration":`) {
			t.Fatalf("%s, %v", lines.Text(), lines.Err())
		}
	}

	s.db.Do("DELETE FROM cleanupd.event WHERE sequence > 7")
	events(8, 10, 9)
	_, err = running.Recv()
	info, _ := wantCode(t, err, codes.DataLoss)
	if info.GetReason() != eventlog.LogReplaced || info.GetDomain() != "cleanupd" ||
		info.GetMetadata()["run_id"] != id ||
		info.GetMetadata()["after_sequence"] != "7" ||
		!strings.Contains(err.Error(), "after_sequence 7") {
		t.Errorf("%v: %v", err, info)
	}
	var last any
	if lines.Scan(); json.Unmarshal(lines.Bytes(), &last) != nil ||
		at(last, "error", "code") != float64(codes.DataLoss) {
		t.Fatalf("the stream ends with %s", lines.Text())
	}
	if detail := at(last, "error", "details").([]any)[0]; at(detail, "reason") != eventlog.LogReplaced ||
		at(detail, "metadata", "after_sequence") != "7" {
		t.Errorf("its details: %v", detail)
	}
	for after, code := range map[string]int{
		"?after_sequence=8&log_generation=8": 500,
		"?afterSequence=11":                  500,
		"?logGeneration=-1":                  400,
		"?log_generation=x":                  400,
	} {
		if got := s.call(t, "GET", "/v1/runs/"+id+"/events"+after, ""); got.code != code {
			t.Errorf("%s: %d %s", after, got.code, got.body)
		}
	}

	again, err := s.WatchRun(t.Context(), &cleanupv1.WatchRunRequest{RunId: id, AfterSequence: 7, LogGeneration: 8})
	if err != nil {
		t.Fatal(err)
	}
	for sequence := int64(8); sequence <= 10; sequence++ {
		if m, err := again.Recv(); err != nil || m.GetEvent().GetSequence() != sequence ||
			m.GetEvent().GetLogGeneration() != 9 {
			t.Fatalf("%v, %v", m, err)
		}
	}
	s.db.Do("DELETE FROM cleanupd.run")
	_, err = again.Recv()
	wantCode(t, err, codes.NotFound)
}
