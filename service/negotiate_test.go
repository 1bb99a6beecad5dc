package service_test

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asked returns the response as it goes over the wire; the caller closes the body.
func (s *server) asked(t *testing.T, method, path, body string, headers map[string]string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// A stream is lines of JSON unless the client accepts only JSON; its content is the same.
func TestMediaTypesOfStreams(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	for accept, want := range map[string]string{
		"":                                  "application/x-ndjson",
		"*/*":                               "application/x-ndjson",
		"application/x-ndjson":              "application/x-ndjson",
		"text/html, */*;q=0.8":              "application/x-ndjson",
		"application/json":                  "application/json",
		"application/json, text/plain, */*": "application/json",
		"application/json;q=0.9":            "application/json",
	} {
		resp := s.asked(t, "POST", "/v1/runs", `{"dryRun": true, "tasks": ["sessions"]}`,
			map[string]string{"Accept": accept, "Accept-Encoding": "gzip"})
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != want ||
			resp.Header.Get("Content-Encoding") != "" ||
			strings.Count(string(text), "\n")-strings.Count(string(text), `"taskProgress":`) != 4 ||
			!strings.HasPrefix(string(text), `{"result":{"event":`) {
			t.Errorf("Accept: %s: %v %d %v %s", accept, err, resp.StatusCode, resp.Header, text)
		}
	}
	if resp := s.asked(t, "POST", "/v1/runs", `{"tasks": ["nonsense"]}`, nil); resp.StatusCode != 400 ||
		resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("an error: %d %v", resp.StatusCode, resp.Header)
	}
	if resp := s.asked(t, "GET", "/v1/tasks", "", nil); resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("no stream: %v", resp.Header)
	}
}

// An event of a stream comes at once, compressed or not.
func TestEventsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	hold(t, s.db)
	resp := s.asked(t, "POST", "/v1/runs", `{"tasks": ["import-rejects"]}`,
		map[string]string{"Accept-Encoding": "gzip"})
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, "runStarted") {
		t.Errorf("%v %s", err, line)
	}
}

// A long response is compressed for clients that accept it; a short one is not.
func TestCompression(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	for _, path := range []string{"/v1/tasks", "/openapi.json", "/metrics"} {
		resp := s.asked(t, "GET", path, "", map[string]string{"Accept-Encoding": "gzip"})
		unpacked, err := gzip.NewReader(resp.Body)
		if err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %v %v", path, err, resp.Header)
			continue
		}
		text, err := io.ReadAll(unpacked)
		if plain, _ := io.ReadAll(s.asked(t, "GET", path, "", nil).Body); err != nil ||
			(path != "/metrics" && string(text) != string(plain)) {
			t.Errorf("%s: %v %s", path, err, text)
		}
	}
	if resp := s.asked(t, "GET", "/v1/runs", "", map[string]string{"Accept-Encoding": "gzip"}); resp.Header.Get(
		"Content-Encoding",
	) != "" {
		t.Errorf("a short answer: %v", resp.Header)
	}
}

// HEAD works wherever GET does, with the same status and header but no body. For a stream it is answered at once.
func TestHead(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	hold(t, s.db)
	run := s.call(t, "POST", "/v1/runs", `{"tasks": ["import-rejects"], "detach": true}`)
	id := at(run.lines[0], "result", "event", "runId").(string)
	for _, path := range []string{
		"/v1/tasks",
		"/v1/runs",
		"/v1/runs/" + id,
		"/v1/runs/" + id + "/events",
		"/v1/options",
		"/v1/schedule",
		"/v1/mid-sourcing/leftovers",
		"/healthz",
		"/readyz",
		"/metrics",
		"/openapi.json",
		"/v1/runs/nonsense", "/v1/runs/nonsense/events", "/v1/tasks?nonsense=1", "/nowhere",
	} {
		began := time.Now()
		get, head := s.asked(t, "GET", path, "", nil), s.asked(t, "HEAD", path, "", nil)
		body, err := io.ReadAll(head.Body)
		if head.StatusCode != get.StatusCode || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") ||
			len(body) > 0 ||
			err != nil ||
			time.Since(began) > time.Minute {
			t.Errorf("%s: GET %d %v, HEAD %d %v %v %s", path, get.StatusCode, get.Header, head.StatusCode, head.Header,
				err, body)
		}
	}
	for _, path := range []string{"/v1/runs/" + id + ":cancel", "/v1/userdata:find"} {
		if resp := s.asked(t, "HEAD", path, "", nil); resp.StatusCode != 405 {
			t.Errorf("HEAD %s: %d", path, resp.StatusCode)
		}
	}
	if resp := s.asked(t, "DELETE", "/v1/tasks", "", nil); resp.StatusCode != 405 ||
		resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("DELETE: %d %v", resp.StatusCode, resp.Header)
	}
}
