package service_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

func (s *server) schedule(t *testing.T) *cleanupv1.Schedule {
	t.Helper()
	got, err := s.GetSchedule(t.Context(), &cleanupv1.GetScheduleRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return got.GetSchedule()
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Superuser("ALTER DATABASE " + db.Name + " SET timezone = 'Asia/Tokyo'")
	db.Reset()
	s := serve(t, db, false)
	if got, want := s.schedule(t), (&cleanupv1.Schedule{Cron: "0 4 * * *", TimeZone: "Asia/Tokyo", ContinueOnError: new(
		true,
	)}); !proto.Equal(got, want) {
		t.Errorf("before one was stored: %v", got)
	}
	once := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for _, c := range []struct {
		given, want *cleanupv1.Schedule
		starts      int // that are shown in advance
	}{
		{
			&cleanupv1.Schedule{},
			&cleanupv1.Schedule{Cron: "0 4 * * *", TimeZone: "Asia/Tokyo", ContinueOnError: new(true)},
			0,
		},
		{
			&cleanupv1.Schedule{
				Cron:            "0 4 29 2 *",
				TimeZone:        "Europe/Berlin",
				Enabled:         true,
				MaxDuration:     durationpb.New(90 * time.Minute),
				ContinueOnError: new(false),
			},
			&cleanupv1.Schedule{
				Cron:            "0 4 29 2 *",
				TimeZone:        "Europe/Berlin",
				Enabled:         true,
				MaxDuration:     durationpb.New(90 * time.Minute),
				ContinueOnError: new(false),
			},
			5,
		},
		{
			&cleanupv1.Schedule{
				Cron:      "0 4 * * *",
				MoreCrons: slices.Repeat([]string{"30 12 * * *", "30 12 * * 6-7"}, 10),
				Enabled:   true,
			},
			&cleanupv1.Schedule{
				Cron:            "0 4 * * *",
				MoreCrons:       slices.Repeat([]string{"30 12 * * *", "30 12 * * 6-7"}, 10),
				TimeZone:        "Asia/Tokyo",
				Enabled:         true,
				ContinueOnError: new(true),
			},
			14,
		},
		{
			&cleanupv1.Schedule{MoreCrons: []string{"30 12 * * *"}},
			&cleanupv1.Schedule{
				Cron:            "0 4 * * *",
				MoreCrons:       []string{"30 12 * * *"},
				TimeZone:        "Asia/Tokyo",
				ContinueOnError: new(true),
			},
			0,
		},
		{
			&cleanupv1.Schedule{
				Once:        timestamppb.New(once),
				Enabled:     true,
				LastRunId:   "passed over",
				NextRunTime: timestamppb.New(time.Unix(0, 0)),
			},
			&cleanupv1.Schedule{
				Once:            timestamppb.New(once),
				TimeZone:        "Asia/Tokyo",
				Enabled:         true,
				ContinueOnError: new(true),
			},
			1,
		},
	} {
		out, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{Schedule: c.given})
		if err != nil {
			t.Fatal(err)
		}
		got := out.GetSchedule()
		if !proto.Equal(got, s.schedule(t)) {
			t.Errorf("the answer %v differs from what is kept", got)
		}
		next := got.GetNextRunTime()
		if (next != nil) != c.want.GetEnabled() || (next != nil && !next.AsTime().After(time.Now())) {
			t.Errorf("the next time: %v", next)
		}
		starts := got.GetUpcomingRunTimes()
		if len(starts) != c.starts || (c.starts > 0 && !proto.Equal(starts[0], next)) ||
			!slices.IsSortedFunc(
				starts, func(a, b *timestamppb.Timestamp) int { return a.AsTime().Compare(b.AsTime()) },
			) {
			t.Errorf("the next starts, %d of them: %v", c.starts, starts)
		}
		c.want.NextRunTime, c.want.UpcomingRunTimes, c.want.Warnings = next, starts, got.GetWarnings()
		if !proto.Equal(got, c.want) {
			t.Errorf("stored %v, want %v", got, c.want)
		}
	}
	if got := s.schedule(t); !got.GetNextRunTime().AsTime().Equal(once) {
		t.Errorf("the only time is %v", got)
	}
}

// A single time that has passed is no obstacle to other changes, and does not come again. Enabling it is an error.
func TestPassedOnce(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	at := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Microsecond))
	if _, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{
		Schedule: &cleanupv1.Schedule{Once: at, Enabled: true},
	}); err != nil {
		t.Fatal(err)
	}
	s.db.Do("UPDATE cleanupd.schedule SET once = once - interval '2 hours', next_run_time = NULL")
	passed := timestamppb.New(at.AsTime().Add(-2 * time.Hour))
	for _, c := range []struct {
		schedule *cleanupv1.Schedule
		mask     []string
		wrong    bool
	}{
		{&cleanupv1.Schedule{Undo: durationpb.New(time.Hour)}, []string{"undo"}, false},
		{&cleanupv1.Schedule{Enabled: true}, []string{"enabled"}, false},
		{&cleanupv1.Schedule{Once: passed, Enabled: true, TimeZone: "Asia/Tokyo"}, nil, false},
		{&cleanupv1.Schedule{Once: timestamppb.New(time.Now().Add(-time.Minute))}, []string{"once"}, true},
		{&cleanupv1.Schedule{}, []string{"enabled"}, false},
		{&cleanupv1.Schedule{TimeZone: "Europe/Berlin"}, []string{"time_zone"}, false},
		{&cleanupv1.Schedule{Enabled: true}, []string{"enabled"}, true},
	} {
		_, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{
			Schedule: c.schedule, UpdateMask: &fieldmaskpb.FieldMask{Paths: c.mask},
		})
		if c.wrong {
			wantCode(t, err, codes.InvalidArgument)
		} else if err != nil {
			t.Errorf("%v: %v", c.schedule, err)
		}
		if got := s.schedule(t); !proto.Equal(got.GetOnce(), passed) || got.GetNextRunTime() != nil {
			t.Errorf("%v: stored %v", c.schedule, got)
		}
	}
}

// An enabled schedule says why its runs do not start, or will be refused.
func TestScheduleWarnings(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	check := func(when string, want ...string) {
		t.Helper()
		got := s.call(t, "GET", "/v1/schedule", "")
		var codes []string
		for _, w := range s.schedule(t).GetWarnings() {
			codes = append(codes, w.GetCode())
			if w.GetText() == "" || !strings.Contains(got.body, w.GetCode()) {
				t.Errorf("%s: warning %v, and over REST %s", when, w, got.body)
			}
		}
		if !slices.Equal(codes, want) {
			t.Errorf("%s: warnings %q, want %q", when, codes, want)
		}
	}
	set := func(wanted *cleanupv1.Schedule) {
		t.Helper()
		resp, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{Schedule: wanted})
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(resp.GetSchedule(), s.schedule(t)) {
			t.Errorf("the answer is %v, and then %v", resp.GetSchedule(), s.schedule(t))
		}
	}
	check("by default")
	set(&cleanupv1.Schedule{})
	check("disabled")
	set(&cleanupv1.Schedule{Enabled: true})
	check("enabled", "SCHEDULE_NOT_KEPT", "SCHEDULE_REFUSED")
	s.db.Do("INSERT INTO cleanupd.replica (name, version, schedule) VALUES ('other', '', false)")
	check("with another replica that does not keep it", "SCHEDULE_NOT_KEPT", "SCHEDULE_REFUSED")
	s.db.Do("INSERT INTO cleanupd.replica (name, version, schedule) VALUES ('keeps', '', true)")
	check("with one that keeps it", "SCHEDULE_REFUSED")
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	set(&cleanupv1.Schedule{Enabled: true, NextPlan: dry.GetId()})
	check("with a plan")
	set(&cleanupv1.Schedule{Enabled: true})
	s.db.Do("UPDATE cleanupd.replica SET seen_time = seen_time - interval '1 hour' WHERE name = 'keeps'")
	check("without the replica", "SCHEDULE_NOT_KEPT", "SCHEDULE_REFUSED")
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}}); err != nil {
		t.Fatal(err)
	}
	check("after a run by hand", "SCHEDULE_NOT_KEPT")
	s.db.Do("DELETE FROM cleanupd.first_run")
	if _, err := s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{
		Guards: &cleanupv1.Guards{First: new(false)},
	}); err != nil {
		t.Fatal(err)
	}
	check("with the guard switched off", "SCHEDULE_NOT_KEPT")
}

func TestInvalidSchedules(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	soon := timestamppb.New(time.Now().Add(time.Hour))
	for _, c := range []struct {
		schedule *cleanupv1.Schedule
		fields   []string
	}{
		{nil, []string{"schedule"}},
		{
			&cleanupv1.Schedule{Cron: "nonsense", TimeZone: "Mars/Olympus", MaxDuration: durationpb.New(0)},
			[]string{"schedule.time_zone", "schedule.max_duration", "schedule.cron"},
		},
		{&cleanupv1.Schedule{Cron: "0 4 30 2 *"}, []string{"schedule.cron"}},
		{&cleanupv1.Schedule{Cron: "TZ=UTC 0 4 * * *"}, []string{"schedule.cron"}},
		{&cleanupv1.Schedule{TimeZone: "Local"}, []string{"schedule.time_zone"}},
		{&cleanupv1.Schedule{TimeZone: "localtime"}, []string{"schedule.time_zone"}},
		{&cleanupv1.Schedule{TimeZone: "../../etc/passwd"}, []string{"schedule.time_zone"}},
		{&cleanupv1.Schedule{Cron: "0 4 * * *", Once: soon}, []string{"schedule.once"}},
		{
			&cleanupv1.Schedule{Cron: "0 4 * * *", MoreCrons: slices.Repeat([]string{"30 12 * * *"}, 21)},
			[]string{"schedule.more_crons"},
		},
		{
			&cleanupv1.Schedule{Cron: "nonsense", MoreCrons: []string{"30 12 * * *", "", "0 4 30 2 *", "@daily"}},
			[]string{"schedule.cron", "schedule.more_crons[1]", "schedule.more_crons[2]", "schedule.more_crons[3]"},
		},
		{&cleanupv1.Schedule{MoreCrons: []string{"30 12 * * *"}, Once: soon}, []string{"schedule.once"}},
		{
			&cleanupv1.Schedule{Once: timestamppb.New(time.Now().Add(-time.Minute)), Enabled: true},
			[]string{"schedule.once"},
		},
		{&cleanupv1.Schedule{Once: &timestamppb.Timestamp{Nanos: -1}}, []string{"schedule.once"}},
		{&cleanupv1.Schedule{Undo: durationpb.New(-time.Second)}, []string{"schedule.undo"}},
		{&cleanupv1.Schedule{Undo: durationpb.New(90*24*time.Hour + 1)}, []string{"schedule.undo"}},
		{&cleanupv1.Schedule{Undo: &durationpb.Duration{Seconds: 1, Nanos: -1}}, []string{"schedule.undo"}},
		{&cleanupv1.Schedule{MaxDuration: durationpb.New(-time.Second)}, []string{"schedule.max_duration"}},
		{&cleanupv1.Schedule{MaxDuration: durationpb.New(time.Microsecond - 1)}, []string{"schedule.max_duration"}},
		{&cleanupv1.Schedule{MaxDuration: durationpb.New(36_500*24*time.Hour + 1)}, []string{"schedule.max_duration"}},
		{
			&cleanupv1.Schedule{MaxDuration: &durationpb.Duration{Seconds: 315_576_000_000}},
			[]string{"schedule.max_duration"},
		},
		{
			&cleanupv1.Schedule{MaxDuration: &durationpb.Duration{Seconds: 1, Nanos: -1}},
			[]string{"schedule.max_duration"},
		},
	} {
		_, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{Schedule: c.schedule})
		_, bad := wantCode(t, err, codes.InvalidArgument)
		var got []string
		for _, v := range bad.GetFieldViolations() {
			got = append(got, v.GetField())
		}
		if !slices.Equal(got, c.fields) {
			t.Errorf("%v: violations %v, want %v", c.schedule, got, c.fields)
		}
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.schedule"); n != 0 {
		t.Error("a wrong schedule was stored")
	}
}

func TestScheduleOverREST(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	const given = `{"cron": "30 3 * * 0", "moreCrons": ["30 12 * * 1-5"], "timeZone": "Europe/Berlin", "enabled": ` +
		`true, "maxDuration": "7200s"}`
	if got := s.call(t, "PUT", "/v1/schedule", given); got.code != 200 ||
		at(got.lines[0], "schedule", "maxDuration") != "7200s" {
		t.Errorf("PUT: %d %s", got.code, got.body)
	}
	got := s.call(t, "GET", "/v1/schedule", "")
	if got.code != 200 || at(got.lines[0], "schedule", "cron") != "30 3 * * 0" ||
		!strings.Contains(got.body, `"moreCrons":["30 12 * * 1-5"]`) ||
		at(got.lines[0], "schedule", "timeZone") != "Europe/Berlin" ||
		at(got.lines[0], "schedule", "enabled") != true ||
		at(got.lines[0], "schedule", "lastRunId") != "" ||
		at(got.lines[0], "schedule", "nextRunTime") == nil ||
		at(got.lines[0], "schedule", "continueOnError") != true {
		t.Errorf("GET: %d %s", got.code, got.body)
	}
	// What was read may be written again.
	body := regexp.MustCompile(`^{"schedule": ?(.*), ?"etag": ?"\w+"}\s*$`).FindStringSubmatch(got.body)[1]
	if again := s.call(t, "PUT", "/v1/schedule", body); again.code != 200 || again.body != got.body {
		t.Errorf("PUT of what was read: %d %s", again.code, again.body)
	}
	off := strings.Replace(body, `"continueOnError":true`, `"continueOnError":false`, 1)
	if got := s.call(t, "PUT", "/v1/schedule", off); got.code != 200 ||
		at(got.lines[0], "schedule", "continueOnError") != false {
		t.Errorf("PUT %s: %d %s", off, got.code, got.body)
	}
	if again := s.call(t, "PUT", "/v1/schedule", given); again.body != got.body {
		t.Errorf("PUT without continueOnError: %s", again.body)
	}
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"PUT", "/v1/schedule", `{"cron": "nonsense"}`, 400},
		{"PUT", "/v1/schedule", `{"cron": "0 4 * * *", "once": "2999-01-01T00:00:00Z"}`, 400},
		{"PUT", "/v1/schedule", `{"cron": "0 4 * * *", "moreCrons": ["nonsense"]}`, 400},
		{"PUT", "/v1/schedule", `{"cron": "0 4 * * *", "moreCrons": "30 12 * * *"}`, 400},
		{"PUT", "/v1/schedule", `{"at": "4"}`, 400},
		{"PUT", "/v1/schedule", `{"once": "tomorrow"}`, 400},
		{"PUT", "/v1/schedule", "", 400},
		{"PUT", "/v1/schedule?enabled=true", "{}", 400},
		{"POST", "/v1/schedule", "{}", 405},
		{"PATCH", "/v1/schedule", `{"cron": "nonsense"}`, 400},
	} {
		if got := s.call(t, c.method, c.path, c.body); got.code != c.code {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.code, got.body)
		}
	}
	if after := s.call(t, "GET", "/v1/schedule", ""); after.body != got.body {
		t.Errorf("what was refused changed it: %s", after.body)
	}
	s.db.Cut()
	if got := s.call(t, "GET", "/v1/schedule", ""); got.code != 503 {
		t.Errorf("without a database: %d %s", got.code, got.body)
	}
}
