package service_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/tasks"
)

type answer struct {
	header http.Header
	code   int
	body   string
	lines  []map[string]any // the JSON values in it, one per line
}

// headers are name and value in turn.
func (s *server) call(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s %s may be taken for another type", method, path)
	}
	out := answer{header: resp.Header, code: resp.StatusCode, body: string(raw)}
	for scanner := bufio.NewScanner(strings.NewReader(out.body)); scanner.Scan(); {
		var line map[string]any
		if json.Unmarshal(scanner.Bytes(), &line) == nil {
			out.lines = append(out.lines, line)
		}
	}
	return out
}

func at(v any, path ...string) any {
	for _, name := range path {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

func TestRunOverREST(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(oldRows)
	const some = `{"tasks": ["import-rejects", "audit-trail"]}`
	for i, body := range []string{some, some + "\n"} {
		got := s.call(t, "POST", "/v1/runs", body, "Content-Type", "Application/JSON; charset=utf-8")
		if got.code != 200 || len(got.lines) != strings.Count(got.body, "\n") ||
			len(got.header.Values("request-id")) != 1 {
			t.Fatalf("%d %v %s", got.code, got.header, got.body)
		}
		for n, line := range got.lines {
			event := at(line, "result", "event")
			if at(event, "sequence") != json.Number(itoa(n+1)).String() {
				t.Errorf("line %d: %v", n+1, event)
			}
		}
		last := at(got.lines[len(got.lines)-1], "result", "event", "runFinished", "run")
		if at(last, "state") != "RUN_STATE_SUCCEEDED" || at(last, "error") != "" || at(last, "dryRun") != false {
			t.Errorf("the run: %v", last)
		}
		result := at(last, "results").([]any)[5]
		if want := []string{"20", "0"}[i]; at(result, "task") != "import-rejects" ||
			at(result, "rowsDeleted") != want ||
			at(result, "tablesDropped") != "0" {
			t.Errorf("its result: %v", result)
		}
		id := at(last, "id").(string)
		events := s.call(t, "GET", "/v1/runs/"+id+"/events?after_sequence=3", "")
		if events.code != 200 || len(events.lines) != len(got.lines)-3 {
			t.Errorf("%d events after the third of %d", len(events.lines), len(got.lines))
		}
		if one := s.call(t, "GET", "/v1/runs/"+id, ""); one.code != 200 || at(one.lines[0], "run", "id") != id {
			t.Errorf("GetRun: %d %s", one.code, one.body)
		}
		if cancel := s.call(t, "POST", "/v1/runs/"+id+":cancel", ""); cancel.code != 200 ||
			at(cancel.lines[0], "run", "state") != "RUN_STATE_SUCCEEDED" {
			t.Errorf("CancelRun: %d %s", cancel.code, cancel.body)
		}
	}
	list := s.call(t, "GET", "/v1/runs?pageSize=1", "")
	if list.code != 200 || len(at(list.lines[0], "runs").([]any)) != 1 || at(list.lines[0], "nextPageToken") == "" {
		t.Errorf("ListRuns: %d %s", list.code, list.body)
	}
	if got := s.call(t, "GET", "/v1/tasks", ""); got.code != 200 ||
		len(at(got.lines[0], "tasks").([]any)) != len(tasks.Pipeline) {
		t.Errorf("ListTasks: %d %s", got.code, got.body)
	}
}

func itoa(n int) string {
	raw, _ := json.Marshal(n)
	return string(raw)
}

func TestErrorsOverREST(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(oldRows)
	t.Run("refused", func(t *testing.T) { refusals(t, s) })
	if n := s.db.Int("SELECT (SELECT count(*) FROM cleanupd.run) + (SELECT count(*) FROM XtkOption)"); n != 0 {
		t.Errorf("%d runs or options came of refused requests", n)
	}
}

// What cannot be parsed in a body is a field violation, also if the body is only a part of the message, and in a PATCH.
// What the server refuses is named in the same way: as it was sent.
func TestViolationsOfBodies(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", "/v1/runs", `{"dryrun": true}`, "dryrun"},
		{"PUT", "/v1/policies/x", `{"olderThan": {"dayz": 3}}`, "olderThan.dayz"},
		{"PATCH", "/v1/policies/x", `{"filters": [{"op": "LIKE"}]}`, "filters[0].op"},
		{"PUT", "/v1/policies/x", `{"table": "XtkAudit", "olderThan": {"column": "x", "days": -1}}`, "olderThan.days"},
		{"PUT", "/v1/policies/x", `{"table": "XtkAudit"}`, ""},
		{"PATCH", "/v1/options", `{"visitorPurgeDelayDays": 0}`, "visitorPurgeDelayDays"},
		{"PUT", "/v1/schedule", `{"timeZone": "Mars"}`, "timeZone"},
		{"POST", "/v1/runs", `{"acceptGuards": [{}], "dryRun": true}`, "acceptGuards"},
		{"GET", "/v1/runs?page_size=-1", "", "page_size"},
		{"GET", "/v1/runs?pageSize=-1", "", "pageSize"},
	} {
		got := s.call(t, c.method, c.path, c.body)
		if got.code != 400 || !strings.Contains(got.body, `"field":"`+c.field+`"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.code, got.body)
		}
	}
}

func refusals(t *testing.T, s *server) {
	const unknown = "/v1/runs/00000000-0000-0000-0000-000000000000"
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		streams                  bool // the error is within {"error": …}
	}{
		{"unknown field", "POST", "/v1/runs", `{"dryrun": true}`, nil, 400, true},
		{"no body", "POST", "/v1/runs", "", nil, 400, true},
		{"a body of blanks", "POST", "/v1/runs", " \n", nil, 400, true},
		{"null", "POST", "/v1/runs", "null", nil, 400, true},
		{"a change without a body", "PUT", "/v1/schedule", "", nil, 400, false},
		{"fields to change without a body", "PATCH", "/v1/guards", "", nil, 400, false},
		{"a hold without a body", "POST", "/v1/holds", "", nil, 400, false},
		{"a sweep without a body", "POST", "/v1/userdata:sweep", "", nil, 400, true},
		{"text after the value", "POST", "/v1/runs", `{"dryRun": true} x`, nil, 400, true},
		{"a second value", "POST", "/v1/runs", `{"dryRun": true}{}`, nil, 400, true},
		{"malformed", "POST", "/v1/runs", `{"dryRun": tru`, nil, 400, true},
		{"no object", "POST", "/v1/runs", `[]`, nil, 400, true},
		{"wrong type", "POST", "/v1/runs", `{"tasks": "sessions"}`, nil, 400, true},
		{"unknown task", "POST", "/v1/runs", `{"tasks": ["x"]}`, nil, 400, true},
		{"query parameter on a POST", "POST", "/v1/runs?dry_run=true", `{}`, nil, 400, true},
		{"too large", "POST", "/v1/runs", `{"tasks": ["` + strings.Repeat("x", 1<<20) + `"]}`, nil, 400, true},
		{"unknown query parameter", "GET", "/v1/runs?size=1", "", nil, 400, false},
		{"query parameter twice", "GET", "/v1/runs?page_size=1&page_size=2", "", nil, 400, false},
		{"query parameter of the wrong type", "GET", "/v1/runs?page_size=x", "", nil, 400, false},
		{"bad page token", "GET", "/v1/runs?page_token=x", "", nil, 400, false},
		{"bad page token of leftovers", "GET", "/v1/mid-sourcing/leftovers?page_token=x", "", nil, 400, false},
		{"negative page size of leftovers", "GET", "/v1/mid-sourcing/leftovers?pageSize=-1", "", nil, 400, false},
		{"an account that no text can be", "GET", "/v1/mid-sourcing/leftovers?account=%00", "", nil, 400, false},
		{"an account that is not UTF-8", "GET", "/v1/mid-sourcing/leftovers?account=%ff", "", nil, 400, false},
		{"leftovers of another parameter", "GET", "/v1/mid-sourcing/leftovers?name=x", "", nil, 400, false},
		{"leftovers in a body", "GET", "/v1/mid-sourcing/leftovers", `{"account": "x"}`, nil, 400, false},
		{"wrong method on leftovers", "DELETE", "/v1/mid-sourcing/leftovers", "", nil, 405, false},
		{"query parameter where there are none", "GET", "/v1/tasks?x=1", "", nil, 400, false},
		{"negative sequence", "GET", unknown + "/events?after_sequence=-1", "", nil, 400, true},
		{"unknown run", "GET", unknown, "", nil, 404, false},
		{"unknown run's events", "GET", unknown + "/events", "", nil, 404, true},
		{"cancelling an unknown run", "POST", unknown + ":cancel", "", nil, 404, false},
		{"a body where there is none", "POST", unknown + ":cancel", `{"nonsense": 1}`, nil, 400, false},
		{"text where there is no body", "POST", unknown + ":cancel", "xyz", nil, 400, false},
		{"a body far behind", "POST", unknown + ":cancel", strings.Repeat(" ", 1000) + "xyz", nil, 400, false},
		{"a body of a GET", "GET", "/v1/tasks", `{"x": 1}`, nil, 400, false},
		{"an empty message where there is no body", "POST", unknown + ":cancel", "{ }\n", nil, 404, false},
		{"no id", "GET", "/v1/runs/x", "", nil, 404, false},
		{"unknown path", "GET", "/v1/nothing", "", nil, 404, false},
		{"unknown path outside the API", "GET", "/nothing", "", nil, 404, false},
		{"wrong method", "DELETE", "/v1/runs", "", nil, 405, false},
		{"wrong method on a verb", "GET", "/v1/runs/x:cancel", "", nil, 405, false},
		{
			"a form is no GET",
			"POST",
			"/v1/tasks",
			"",
			[]string{"Content-Type", "application/x-www-form-urlencoded"},
			405,
			false,
		},
		{"no override", "POST", "/v1/options", "{}", []string{"X-HTTP-Method-Override", "PATCH"}, 405, false},
		{"wrong method on a probe", "POST", "/healthz", "", nil, 405, false},
		{
			"a page of another origin",
			"POST",
			"/v1/runs",
			`{}`,
			[]string{"Origin", "https://example.com", "Content-Type", "text/plain"},
			403,
			true,
		},
		{"a fetch of another site", "POST", "/v1/runs", `{}`, []string{"Sec-Fetch-Site", "cross-site"}, 403, true},
		{"a cross-origin GET", "GET", "/v1/runs", "", []string{"Origin", "https://example.com"}, 403, false},
		{"a foreign host", "POST", "/v1/runs", `{}`, []string{"Host", "rebound.example.com"}, 403, true},
		{
			"a run as a form",
			"POST",
			"/v1/runs",
			`{}`,
			[]string{"Content-Type", "application/x-www-form-urlencoded"},
			415,
			true,
		},
		{"a run as text", "POST", "/v1/runs", `{}`, []string{"Content-Type", "text/plain"}, 415, true},
		{"a run of no type", "POST", "/v1/runs", "", []string{"Content-Type", ""}, 415, true},
		{
			"a malformed type",
			"PATCH",
			"/v1/options",
			`{}`,
			[]string{"Content-Type", "application/json; application/json"},
			400,
			false,
		},
		{
			"a type that begins like JSON",
			"PUT",
			"/v1/schedule",
			`{}`,
			[]string{"Content-Type", "application/json-patch+json"},
			415,
			false,
		},
		{
			"a person searched for as text",
			"POST",
			"/v1/userdata:find",
			`{"userId": "x"}`,
			[]string{"Content-Type", "text/plain"},
			415,
			false,
		},
		{
			"an erasure as text",
			"POST",
			"/v1/userdata:erase",
			`{"userId": "x"}`,
			[]string{"Content-Type", "text/plain"},
			415,
			true,
		},
		{
			"an output-only option", "PATCH", "/v1/options", `{"lastCleanupTime": "2026-01-01T00:00:00Z"}`, nil, 400,
			false,
		},
		{"an option too small", "PATCH", "/v1/options", `{"visitorPurgeDelayDays": 0}`, nil, 400, false},
		{"an unknown option", "PATCH", "/v1/options", `{"visitor": 1}`, nil, 400, false},
		{
			"an unspecified enum", "PATCH", "/v1/options",
			`{"storageOptimization": "STORAGE_OPTIMIZATION_UNSPECIFIED"}`, nil, 400, false,
		},
		{"a mask in the query", "PATCH", "/v1/options?update_mask=visitorPurgeDelayDays", `{}`, nil, 400, false},
		{"a stale etag", "PATCH", "/v1/options?etag=x", `{"visitorPurgeDelayDays": 1}`, nil, 409, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := s.call(t, c.method, c.path, c.body, c.headers...)
			if got.code != c.code || len(got.lines) != 1 {
				t.Fatalf("%d %s", got.code, got.body)
			}
			if len(got.header.Values("request-id")) != 1 { // by which it is found in the log
				t.Errorf("the header: %v", got.header)
			}
			status := any(got.lines[0])
			if c.streams {
				status = at(status, "error")
			}
			if at(status, "message") == nil || at(status, "message") == "" || at(status, "code") == nil {
				t.Errorf("the error: %s", got.body)
			}
		})
	}
}

// A client that used a wrong method gets the allowed ones.
func TestAllow(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	for _, c := range []struct{ method, path, allow string }{
		{"DELETE", "/v1/runs", "GET, HEAD, POST"},
		{"PUT", "/v1/runs/x", "GET, HEAD"},
		{"GET", "/v1/runs/x:cancel", "POST"},
		{"POST", "/v1/runs/x/events", "GET, HEAD"},
		{"DELETE", "/v1/options", "GET, HEAD, PATCH"},
		{"POST", "/v1/schedule", "GET, HEAD, PATCH, PUT"},
		{"GET", "/v1/userdata:erase", "POST"},
		{"POST", "/healthz", "GET, HEAD"},
		{"POST", "/metrics", "GET, HEAD"},
	} {
		if got := s.call(t, c.method, c.path, ""); got.code != 405 || got.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, Allow: %q, want %q", c.method, c.path, got.code, got.header.Get("Allow"), c.allow)
		}
	}
}

func TestProbesAndDocuments(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.call(t, "GET", "/v1/tasks", "")
	for path, part := range map[string]string{
		"/healthz":      "ok",
		"/readyz":       "ok",
		"/metrics":      "go_goroutines",
		"/openapi.json": "/v1/runs/{runId}:cancel",
	} {
		if got := s.call(t, "GET", path, ""); got.code != 200 || !strings.Contains(got.body, part) ||
			len(got.header.Values("request-id")) != 1 {
			t.Errorf("%s: %d %v %.200s", path, got.code, got.header, got.body)
		}
	}
	if got := s.call(t, "GET", "/metrics", ""); !strings.Contains(got.body, "ListTasks") {
		t.Error("the metrics do not count calls")
	}
	s.db.Do("DROP SCHEMA cleanupd CASCADE")
	got := s.call(t, "GET", "/readyz", "")
	// the answer may be a second old
	for end := time.Now().Add(time.Minute); got.code == 200 && time.Now().Before(end); got = s.call(
		t, "GET", "/readyz", "",
	) {
	}
	if got.code != 503 {
		t.Errorf("/readyz without the schema: %d %s", got.code, got.body)
	}
	for _, host := range []string{"localhost:1234", "127.0.0.1", "[::1]:80"} {
		if got := s.call(t, "GET", "/healthz", "", "Host", host); got.code != 200 {
			t.Errorf("the host %s: %d", host, got.code)
		}
	}
}
