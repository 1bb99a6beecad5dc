package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// All slots for runs are taken by runs without a worker: an accepted request is ABORTED (409) for a run,
// RESOURCE_EXHAUSTED (429) for a dry run, and nothing is started.
func busy(f *testing.F) *server {
	s := serve(f, database(f), true)
	for _, dry := range []bool{false, true, true} {
		ctx, leave := context.WithCancel(f.Context())
		stream, err := s.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{DryRun: dry})
		if err != nil {
			f.Fatal(err)
		}
		defer func() {
			leave()
			_, _ = stream.Recv()
		}()
	}
	s.db.Until("SELECT (count(*) = 3)::int FROM cleanupd.run")
	return s
}

// 0: the request cannot be made at all.
func (s *server) ask(t *testing.T, method, path, body string) (code int, answer []byte) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %q %q: %v", method, path, body, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		t.Fatalf("%s %q %q: %v", method, path, body, err)
	}
	return resp.StatusCode, answer
}

// As the contract says: one JSON value that the message knows.
func read(body string, m proto.Message) bool {
	return json.Valid([]byte(body)) && protojson.Unmarshal([]byte(body), m) == nil
}

// No request makes the server fail; it refuses requests with a status that says why.
func FuzzREST(f *testing.F) {
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/runs", ""},
		{"GET", "/v1/runs?page_size=-1", ""},
		{"GET", "/v1/runs?pageSize=1&page_token=MjAyNg==", ""},
		{"GET", "/v1/runs?page_size=2147483648", ""},
		{"GET", "/v1/runs?%zz", ""},
		{"GET", "/v1/runs?page_token=%ff", ""},
		{"GET", "/v1/runs;x=1?a;b", ""},
		{"GET", "/v1/runs/urn:uuid:01a1fde2-f3f9-7404-bf12-c82939b07280", ""},
		{"GET", "/v1/runs/%00", ""},
		{"GET", "/v1/runs/%ff", ""},
		{"GET", "/v1/runs/x%2fevents", ""},
		{"GET", "/v1/runs/x:cancel", ""},
		{"GET", "/v1/runs/x/events?after_sequence=1e3", ""},
		{"POST", "/v1/runs", `{"dryRun": true}`},
		{"POST", "/v1/runs?dry_run=true", "{}"},
		{"POST", "/v1/runs/:cancel", ""},
		{"POST", "/v1/runs/x:cancel", "[]"},
		{"POST", "/v1/runs/x:y:cancel", ""},
		{"GET", "/v1/mid-sourcing/leftovers?account=%00", ""},
		{"GET", "/v1/mid-sourcing/leftovers?account=&page_token=MSAyIA", ""},
		{"GET", "/v1/tasks", ""},
		{"GET", "/v1/options", ""},
		{"GET", "/v1/schedule", ""},
		{"PATCH", "/v1/options?etag=%00", "{}"},
		{"PUT", "/v1/schedule", `{"once": "9999-12-31T23:59:59.999999999Z"}`},
		{"PUT", "/v1/schedule", `{"once": "0001-01-01T00:00:00Z"}`},
		{"PUT", "/v1/schedule", `{"maxDuration": "315576000000s"}`},
		{"PUT", "/v1/schedule", `{"timeZone": "\u0000", "cron": "\u0000"}`},
		{"PUT", "/v1/schedule", "null"},
		{"POST", "/v1/userdata:find", `{"userId": "x"}`},
		{"POST", "/v1/userdata:erase", `{"taskIds": ["1"], "dryRun": true}`},
		{"GET", "/v1/userdata/receipts?page_token=x", ""},
		{"GET", "/v1/userdata:find", ""},
		{"OPTIONS", "*", ""},
		{"GET", "/readyz", ""},
		{"GET", "/openapi.json", ""},
		{"HEAD", "/healthz", ""},
		{"GET", "//v1/runs/../tasks", ""},
		{"CONNECT", "/v1/runs", ""},
		{"TRACE", "/v1/runs", ""},
		{"get", "/v1/runs", ""},
		{"GET", "/v1/runs#x", ""},
		{"0", "/v1/7\xa4?\xda\xdaa b", "x"},
	} {
		f.Add(c.method, c.path, c.body)
	}
	s := busy(f)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if u, err := url.Parse(s.url + path); err != nil || u.Host == "" || s.url != u.Scheme+"://"+u.Host ||
			method == "CONNECT" {
			return // another server, or a tunnel
		}
		code, answer := s.ask(t, method, path, body)
		if code == 0 || (code == http.StatusBadRequest && strings.HasPrefix(string(answer), "400 Bad Request")) {
			return // this is not HTTP
		}
		if code >= 500 {
			t.Fatalf("%s %q %q: %d %s", method, path, body, code, answer)
		}
		if code >= 400 && method != "HEAD" && !json.Valid(answer) {
			t.Errorf("%s %q %q: %d %q", method, path, body, code, answer)
		}
	})
}

// Only a valid request starts a run: a dry run is never taken for a real one.
func FuzzRunCleanupBody(f *testing.F) {
	for _, c := range [][2]string{
		{"", ""},
		{"", "{}"},
		{"", " \n"},
		{"", `{"dryRun": true}`},
		{"", `{"dry_run": true}`},
		{"", `{"dryRun": true, "dryRun": false}`},
		{"", `{"dryRun": true, "dry_run": false}`},
		{"", `{"dryRun": null}`},
		{"", `{"dryrun": true}`},
		{"", `{"dryRun": "true"}`},
		{"", `{"dryRun": true} {}`},
		{"", `{"dryRun": true}x`},
		{"", "null"},
		{"", "[]"},
		{"", "\ufeff{}"},
		{"", "{}\x00"},
		{"?dry_run=true", "{}"},
		{"?dryRun=true", ""},
		{"?", `{"dryRun": true}`},
		{"?=", "{}"},
		{"?a=1;b=2", "{}"},
		{"?%zz=1", "{}"},
		{"?&", "{}"},
		{"??", "{}"},
		{"", `{"tasks": ["sessions"], "skipTasks": ["sessions"]}`},
		{"", `{"tasks": ["\u0000"]}`},
		{"", `{"maxDuration": "0s"}`},
		{"", `{"maxDuration": "1.000000001s", "detach": true}`},
		{"", `{"maxDuration": "315576000000s"}`},
		{"", `{"\ud800": 1}`},
		{"", strings.Repeat("[", 20_000)},
		{"", `{"dryRun": true, "@type": "x"}`},
		{"", "{\"dryRun\":true,}"},
		{"", `{"dryRun":true/**/}`},
	} {
		f.Add(c[0], c[1])
	}
	s := busy(f)
	f.Fuzz(func(t *testing.T, query, body string) {
		if query != "" && (query[0] != '?' || strings.Contains(query, "#")) {
			return
		}
		code, answer := s.ask(t, "POST", "/v1/runs"+query, body)
		var m cleanupv1.RunCleanupRequest
		understood := read(body, &m)
		none := strings.Trim(strings.TrimPrefix(query, "?"), "&") == "" // without any parameter
		switch {
		case code == 0 ||
			(code == http.StatusBadRequest && understood && len(m.GetTasks())+len(m.GetSkipTasks()) > 0) ||
			(code == http.StatusBadRequest && m.MaxDuration != nil):
		case code == http.StatusBadRequest:
			if understood && none {
				t.Errorf("%q %q is refused: %s", query, body, answer)
			}
		case !understood || !none:
			t.Errorf("%q %q is accepted: %d", query, body, code)
		case m.GetDryRun() && code != http.StatusTooManyRequests, !m.GetDryRun() && code != http.StatusConflict:
			t.Errorf("%q %q: %d %s", query, body, code, answer)
		}
	})
}

// The stored options and schedule are what the body says, and a body that is not understood changes nothing.
func FuzzSettingsBody(f *testing.F) {
	for _, c := range [][2]string{
		{`{"visitorPurgeDelayDays": 60}`, `{"cron": "0 4 * * *"}`},
		{`{"visitorPurgeDelayDays": null}`, `{"timeZone": "Europe/Berlin", "enabled": true}`},
		{`{"visitorPurgeDelayDays": 5}`, `{"continueOnError": false}`},
		{`{"visitorPurgeDelayDays": 6}`, `{"cron": "0 4 * * *", "moreCrons": ["30 12 * * *", "30 12 * * 6-7"]}`},
		{`{"visitorPurgeDelayDays": 8}`, `{"moreCrons": [""]}`},
		{`{"visitorPurgeDelayDays": 1e1}`, `{"once": "2090-01-01T00:00:00.123456Z"}`},
		{`{"visitorPurgeDelayDays": "7"}`, `{"maxDuration": "0.000001s"}`},
		{`{"visitorPurgeDelayDays": 24855}`, `{"maxDuration": "0.000000001s"}`},
		{`{"visitorPurgeDelayDays": 24856}`, `{"maxDuration": "-1s"}`},
		{`{"visitorPurgeDelayDays": 2147483648}`, `{"nextRunTime": "2026-01-01T00:00:00Z"}`},
		{`{"storageOptimization": "STORAGE_OPTIMIZATION_NONE"}`, `{"once": "9999-12-31T23:59:59.9999999Z"}`},
		{`{"storageOptimization": 3}`, `{"once": "0001-01-01T00:00:00Z"}`},
		{`{"storageOptimization": 0}`, `{"once": "2090-01-01T00:00:00.123456789Z", "enabled": true}`},
		{`{"lastCleanupTime": "2026-01-01T00:00:00Z"}`, `{"lastRunId": "x"}`},
		{`{"visitorPurgeDelayDays": 3, "visitor_purge_delay_days": 4}`, `{"cron": ""}`},
		{"{}", "{}"},
		{"", ""},
		{"null", "null"},
		{`{} x`, `{} x`},
	} {
		f.Add(c[0], c[1])
	}
	s := serve(f, database(f), true)
	f.Fuzz(func(t *testing.T, options, schedule string) {
		code, answer := s.ask(t, "PATCH", "/v1/options", options)
		var patch cleanupv1.Options
		var got cleanupv1.SetOptionsResponse
		switch understood := read(options, &patch); {
		case code != http.StatusOK && code != http.StatusBadRequest, code == http.StatusOK && !understood:
			t.Errorf("options %q: %d %s", options, code, answer)
		case code == http.StatusOK:
			if err := protojson.Unmarshal(answer, &got); err != nil {
				t.Fatal(err)
			}
			merged := proto.Clone(got.GetOptions())
			if proto.Merge(merged, &patch); !proto.Equal(merged, got.GetOptions()) {
				t.Errorf("options %q: %s", options, answer)
			}
		}
		code, answer = s.ask(t, "PUT", "/v1/schedule", schedule)
		var put cleanupv1.Schedule
		switch understood := read(schedule, &put); {
		case code != http.StatusOK && code != http.StatusBadRequest, code == http.StatusOK && !understood:
			t.Errorf("schedule %q: %d %s", schedule, code, answer)
		case code == http.StatusOK:
			_, kept := s.ask(t, "GET", "/v1/schedule", "")
			if !bytes.Equal(answer, kept) {
				t.Errorf("schedule %q: the answer is %s, kept is %s", schedule, answer, kept)
			}
			var set cleanupv1.SetScheduleResponse
			if err := protojson.Unmarshal(answer, &set); err != nil {
				t.Fatal(err)
			}
			now := set.GetSchedule()
			if (put.GetCron() != "" && now.GetCron() != put.GetCron()) || !slices.Equal(
				now.GetMoreCrons(), put.GetMoreCrons(),
			) || (put.GetTimeZone() != "" && now.GetTimeZone() != put.GetTimeZone()) ||
				now.GetEnabled() != put.GetEnabled() ||
				now.GetContinueOnError() != (put.ContinueOnError == nil || put.GetContinueOnError()) ||
				now.GetMaxDuration().AsDuration() != put.GetMaxDuration().AsDuration().Truncate(time.Microsecond) ||
				(put.Once != nil && !now.GetOnce().AsTime().Equal(put.GetOnce().AsTime().Truncate(time.Microsecond))) {
				t.Errorf("schedule %q: %s", schedule, answer)
			}
		}
	})
}
