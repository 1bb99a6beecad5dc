package service_test

import (
	"testing"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/message"
)

// A warning in the log of a run, and the details of a result, have a code and parameters, over gRPC and REST.
func TestCodesOfMessages(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('a', '2000-01-01');
		CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER keep BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION keep()`)
	events, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	var entry *cleanupv1.LogEntry
	for _, e := range events {
		if e.GetLog().GetCode() == message.RowsSuppressed.Code {
			entry = e.GetLog()
		}
	}
	if entry.GetLevel() != cleanupv1.LogLevel_LOG_LEVEL_WARNING || entry.GetParams()["table"] != "xtksessioninfo" ||
		entry.GetParams()["rows"] != "1" || len(entry.GetParams()) != 2 ||
		entry.GetMessage() != message.RowsSuppressed.With("table", "xtksessioninfo", "rows", 1).Text {
		t.Errorf("got log entry %v", entry)
	}
	for _, r := range run.GetResults() {
		if r.GetTask() != "sessions" {
			continue
		}
		if d := r.GetDetails(); len(d) != 1 || d[0].GetCode() != message.ResultSuppressed.Code ||
			d[0].GetParams()["rows"] != "1" || d[0].GetText() != r.GetDetail() || r.GetDetail() == "" {
			t.Errorf("got details %v of %q", d, r.GetDetail())
		}
	}

	got := s.call(t, "GET", "/v1/runs/"+run.GetId()+"/events", "")
	found := false
	for _, line := range got.lines {
		event := at(line, "result", "event")
		if log := at(event, "log"); at(log, "code") == message.RowsSuppressed.Code {
			found = at(log, "params", "table") == "xtksessioninfo" && at(log, "params", "rows") == "1"
		}
	}
	if !found {
		t.Errorf("REST has no such message: %s", got.body)
	}
	got = s.call(t, "GET", "/v1/runs/"+run.GetId(), "")
	results, _ := at(got.lines[0], "run", "results").([]any)
	found = false
	for _, r := range results {
		for _, d := range anys(at(r, "details")) {
			found = found || (at(d, "code") == message.ResultSuppressed.Code && at(d, "params", "rows") == "1")
		}
	}
	if !found {
		t.Errorf("REST has no such detail: %s", got.body)
	}
}

func anys(v any) []any {
	list, _ := v.([]any)
	return list
}
