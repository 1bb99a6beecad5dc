package service_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// RPCs that change something but have no etag, with the reasons.
var unconditional = map[protoreflect.Name]string{
	"RunCleanup":     "starts a run; request_id makes it safe to repeat",
	"CancelRun":      "ends a run, and overwrites nothing",
	"SetPace":        "has one setting of a run",
	"PauseRun":       "pauses a run, and overwrites nothing",
	"ResumeRun":      "resumes a run, and overwrites nothing",
	"CreateHold":     "adds a hold, and overwrites nothing",
	"ReleaseHold":    "ends a hold, which cannot be changed otherwise",
	"EraseUserData":  "deletes data of a Forms database, not a setting",
	"SweepDocuments": "deletes documents of a Forms database, not a setting",
	"VerifyErasure":  "adds its result to a receipt",
	"RestoreTrash":   "starts a run, as RunCleanup does",
	"PurgeTrash":     "deletes what runs have deleted, not a setting",
}

// Each RPC that changes a setting has an etag, in the request or in its resource; each that sets one has a mask, too.
func TestSettingsHaveEtags(t *testing.T) {
	t.Parallel()
	seen := map[protoreflect.Name]bool{}
	for method := range rpcs {
		name, request := method.Name(), method.Input()
		reads := name == "WhoAmI"
		for _, prefix := range []string{"Get", "List", "Watch", "Explain", "Find"} {
			reads = reads || strings.HasPrefix(string(name), prefix)
		}
		switch {
		case reads:
		case unconditional[name] != "":
			seen[name] = true
		case !hasField(request, "etag"):
			t.Errorf("%s has no etag", name)
		case strings.HasPrefix(string(name), "Set") && request.Fields().ByName("update_mask") == nil:
			t.Errorf("%s has no update_mask", name)
		}
	}
	for name := range unconditional {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// The field may be in a message directly in m.
func hasField(m protoreflect.MessageDescriptor, name protoreflect.Name) bool {
	fields := m.Fields()
	for i := range fields.Len() {
		if inner := fields.Get(i).Message(); inner != nil && inner.Fields().ByName(name) != nil {
			return true
		}
	}
	return fields.ByName(name) != nil
}

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

func violated(t *testing.T, err error) string {
	t.Helper()
	_, bad := wantCode(t, err, codes.InvalidArgument)
	var fields []string
	for _, v := range bad.GetFieldViolations() {
		fields = append(fields, v.GetField())
	}
	return strings.Join(fields, ", ")
}

// Only the fields of the mask change; an absent one is reset. A stale etag, or a wrong mask, changes nothing.
func TestScheduleMaskAndEtag(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	set := func(
		etag string, m *fieldmaskpb.FieldMask, schedule *cleanupv1.Schedule,
	) (*cleanupv1.SetScheduleResponse, error) {
		return s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{Schedule: schedule, UpdateMask: m, Etag: etag})
	}
	before, err := s.GetSchedule(t.Context(), &cleanupv1.GetScheduleRequest{})
	if err != nil || before.GetEtag() == "" {
		t.Fatal(before, err)
	}
	first, err := set(before.GetEtag(), mask("enabled", "more_crons", "max_duration"), &cleanupv1.Schedule{
		Cron:        "nonsense", // not in the mask
		MoreCrons:   []string{"30 12 * * *"},
		Enabled:     true,
		MaxDuration: durationpb.New(time.Hour),
	})
	if got := first.GetSchedule(); err != nil || got.GetCron() != "0 4 * * *" || len(got.GetMoreCrons()) != 1 ||
		!got.GetEnabled() || !got.GetContinueOnError() || got.GetMaxDuration().AsDuration() != time.Hour {
		t.Fatal(first, err)
	}
	if audited := s.db.Strings("SELECT details->>'from' FROM cleanupd.audit WHERE rpc LIKE '%SetSchedule'"); len(
		audited,
	) != 1 || audited[0] != "none" {
		t.Errorf("the audit says that the first schedule replaced %q", audited)
	}
	reset, err := set(first.GetEtag(), mask("more_crons", "max_duration"), &cleanupv1.Schedule{})
	if got := reset.GetSchedule(); err != nil || got.GetMoreCrons() != nil || got.GetMaxDuration() != nil ||
		!got.GetEnabled() {
		t.Errorf("a reset: %v, %v", reset, err)
	}
	later := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Microsecond))
	if _, err := set("", mask("once"), &cleanupv1.Schedule{Once: later}); violated(t, err) != "schedule.once" {
		t.Errorf("a time in addition to a cron expression: %v", err)
	}
	once, err := set("", mask("once", "cron"), &cleanupv1.Schedule{Once: later})
	if got := once.GetSchedule(); err != nil || got.GetCron() != "" || !proto.Equal(got.GetOnce(), later) ||
		once.GetEtag() == reset.GetEtag() {
		t.Errorf("a time instead of a cron expression: %v, %v", once, err)
	}
	for want, paths := range map[string][]string{
		"update_mask.paths[0]":                       {"max_duration.seconds"},
		"update_mask.paths[1], update_mask.paths[2]": {"cron", "next_run_time", "crons"},
	} {
		if _, err := set("", mask(paths...), &cleanupv1.Schedule{}); violated(t, err) != want {
			t.Errorf("the mask %s: %v", paths, err)
		}
	}
	for _, m := range []*fieldmaskpb.FieldMask{nil, mask("enabled")} {
		_, err = set(first.GetEtag(), m, &cleanupv1.Schedule{})
		wantCode(t, err, codes.Aborted)
	}
	if same, err := set(once.GetEtag(), mask(), &cleanupv1.Schedule{}); err != nil || same.GetEtag() != once.GetEtag() {
		t.Errorf("an empty mask: %v, %v", same, err)
	}
	now, err := s.GetSchedule(t.Context(), &cleanupv1.GetScheduleRequest{})
	if err != nil || now.GetEtag() != once.GetEtag() || !proto.Equal(now.GetSchedule(), once.GetSchedule()) {
		t.Errorf("what was refused changed the schedule: %v, %v", now, err)
	}
}

func TestGuardsMaskAndEtag(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	set := func(etag string, m *fieldmaskpb.FieldMask, guards *cleanupv1.Guards) (*cleanupv1.SetGuardsResponse, error) {
		return s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{Guards: guards, UpdateMask: m, Etag: etag})
	}
	before, err := s.GetGuards(t.Context(), &cleanupv1.GetGuardsRequest{})
	if err != nil || before.GetEtag() == "" {
		t.Fatal(before, err)
	}
	first, err := set(before.GetEtag(), mask("min_rows", "cutoff"), &cleanupv1.Guards{
		MinRows:   proto.Int64(2_000_000),
		Cutoff:    proto.Bool(false),
		MaxTables: proto.Int64(1), // not in the mask
	})
	if err != nil || first.GetGuards().GetMinRows() != 2_000_000 || first.GetGuards().GetCutoff() ||
		first.GetGuards().GetMaxTables() != 5_000 {
		t.Fatal(first, err)
	}
	second, err := set(first.GetEtag(), mask("cutoff", "max_idle"),
		&cleanupv1.Guards{MaxIdle: durationpb.New(time.Hour)})
	if err != nil || !second.GetGuards().GetCutoff() || second.GetGuards().GetMinRows() != 2_000_000 ||
		second.GetGuards().GetMaxIdle().AsDuration() != time.Hour {
		t.Errorf("a reset: %v, %v", second, err)
	}
	if _, err := set("", mask("max_idle", "idle"), &cleanupv1.Guards{}); violated(t, err) != "update_mask.paths[1]" {
		t.Errorf("an unknown field: %v", err)
	}
	_, err = set(first.GetEtag(), mask("min_rows"), &cleanupv1.Guards{})
	wantCode(t, err, codes.Aborted)
	now, err := s.GetGuards(t.Context(), &cleanupv1.GetGuardsRequest{})
	if err != nil || now.GetEtag() != second.GetEtag() || !proto.Equal(now.GetGuards(), second.GetGuards()) {
		t.Errorf("what was refused changed the guards: %v, %v", now, err)
	}
}

func TestPurgeMaskAndEtag(t *testing.T) {
	t.Parallel()
	_, client, _ := purgeServer(t)
	first := setPurge(t, client, loans())
	change := func(m *fieldmaskpb.FieldMask, p *cleanupv1.FormsPurge) (*cleanupv1.FormsPurge, error) {
		out, err := client.SetFormsPurge(t.Context(),
			&cleanupv1.SetFormsPurgeRequest{Name: "loans", Purge: p, UpdateMask: m})
		return out.GetPurge(), err
	}
	second, err := change(mask("days", "enabled", "etag"), &cleanupv1.FormsPurge{Days: 101, Etag: first.GetEtag()})
	if err != nil || second.GetDays() != 101 || second.GetEnabled() || second.GetDateColumn() != "ended" {
		t.Fatal(second, err)
	}
	if _, err := change(mask("date_column"), &cleanupv1.FormsPurge{}); violated(t, err) != "purge.date_column" {
		t.Errorf("a reset of a required field: %v", err)
	}
	if _, err := change(mask("age"), &cleanupv1.FormsPurge{}); violated(t, err) != "update_mask.paths[0]" {
		t.Errorf("an unknown field: %v", err)
	}
	_, err = change(mask("days"), &cleanupv1.FormsPurge{Days: 7, Etag: first.GetEtag()})
	wantCode(t, err, codes.Aborted)
	_, err = client.SetFormsPurge(t.Context(),
		&cleanupv1.SetFormsPurgeRequest{Name: "new", Purge: loansOf("new"), UpdateMask: mask("days")})
	wantCode(t, err, codes.NotFound)
	_, err = client.DeleteFormsPurge(t.Context(),
		&cleanupv1.DeleteFormsPurgeRequest{Name: "loans", Etag: first.GetEtag()})
	wantCode(t, err, codes.Aborted)
	list, err := client.ListFormsPurges(t.Context(), &cleanupv1.ListFormsPurgesRequest{})
	if err != nil || len(list.GetPurges()) != 1 || !proto.Equal(list.GetPurges()[0], second) {
		t.Errorf("what was refused changed the purges: %v, %v", list, err)
	}
	if _, err := client.DeleteFormsPurge(
		t.Context(), &cleanupv1.DeleteFormsPurgeRequest{Name: "loans", Etag: second.GetEtag()},
	); err != nil {
		t.Error(err)
	}
}

func loansOf(name string) *cleanupv1.FormsPurge {
	p := loans()
	p.Name = name
	return p
}

// PATCH changes the fields in its body, null resets one, and {} changes nothing; PUT replaces everything. Both take an
// etag.
func TestUpdatesOverREST(t *testing.T) {
	t.Parallel()
	s, _, _ := purgeServer(t)
	withEtag := func(resource string) (path string) {
		got := s.call(t, http.MethodGet, resource, "")
		etag, _ := at(got.lines[0], "etag").(string)
		return resource + "?etag=" + etag
	}
	for _, c := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{
			"PATCH", "/v1/schedule", `{"enabled": true, "cron": "0 5 * * *", "maxDuration": "60s"}`, 200,
			`"cron":"0 5 * * *"`,
		},
		{"PATCH", "/v1/schedule", `{}`, 200, `"maxDuration":"60s"`},
		{"PATCH", "/v1/schedule", `{"cron": null, "max_duration": null}`, 200, `"enabled":true`},
		{
			"GET", "/v1/schedule", "", 200,
			`"cron":"0 4 * * *","moreCrons":[],"timeZone":"UTC","enabled":true,"continueOnError"`,
		},
		{"PATCH", "/v1/schedule?etag=x", `{"enabled": false}`, 409, "the schedule changed"},
		{"PUT", "/v1/schedule?etag=x", `{}`, 409, "the schedule changed"},
		{"PATCH", "/v1/schedule", `{"nextRunTime": "2999-01-01T00:00:00Z"}`, 400, "next_run_time is output only"},
		{"PATCH", "/v1/schedule", `{"crons": []}`, 400, "crons"},
		{"PATCH", "/v1/schedule", ``, 400, "the body is missing"},
		{"PATCH", "/v1/schedule?updateMask=cron", `{}`, 400, "updateMask"},
		{"PUT", "/v1/schedule?updateMask=cron", `{}`, 400, "updateMask"},
		{"GET", "/v1/schedule", "", 200, `"enabled":true`},
		{"PUT", withEtag("/v1/schedule"), `{}`, 409, ""}, // read before all of these changes
		{"PUT", "/v1/schedule", `{}`, 200, `"enabled":false`},

		{"GET", "/v1/options", "", 200, `"visitorPurgeDelayDays":30`},
		{
			"PATCH", withEtag("/v1/options"),
			`{"visitorPurgeDelayDays": 5, "storageOptimization": "STORAGE_OPTIMIZATION_NONE"}`, 200,
			`"customized":"storageOptimization,visitorPurgeDelayDays"`,
		},
		{"PATCH", "/v1/options", `{}`, 200, `"visitorPurgeDelayDays":5`},
		{
			"PATCH", "/v1/options", `{"visitorPurgeDelayDays": null, "storage_optimization": null}`, 200,
			`"customized":""`,
		},
		{"GET", "/v1/options", "", 200, `"storageOptimization":"STORAGE_OPTIMIZATION_VACUUM_ANALYZE"`},

		{"PATCH", "/v1/guards", `{"minRows": "7", "maxIdle": "60s"}`, 200, `"maxTables":"5000"`},
		{"PATCH", "/v1/guards", `{"minRows": null}`, 200, `"minRows":"100000"`},
		{"PATCH", "/v1/guards", `{}`, 200, `"maxIdle":"60s"`},
		{"PATCH", "/v1/guards?etag=x", `{"minRows": 1}`, 409, "the guards changed"},
		{"PUT", "/v1/guards?etag=x", `{}`, 409, "the guards changed"},
		{"PATCH", "/v1/guards", ``, 400, "the body is missing"},
		{"PUT", "/v1/guards?updateMask=cutoff", `{}`, 400, "updateMask"},
		{"PUT", "/v1/guards", `{}`, 200, `"maxIdle":"3888000s"`},

		{"PATCH", "/v1/forms/purges/old", `{"days": 5}`, 404, "old"},
		{
			"PUT", "/v1/forms/purges/old", `{"application": "Loans", "dateColumn": "ended", "days": 10}`, 200,
			`"days":10`,
		},
		{"PATCH", "/v1/forms/purges/old", `{"days": 11, "enabled": true}`, 200, `"dateColumn":"ended"`},
		{"PATCH", "/v1/forms/purges/old", `{"name": "old", "enabled": null}`, 200, `"days":11`},
		{"PATCH", "/v1/forms/purges/old", `{}`, 200, `"enabled":false`},
		{"PATCH", "/v1/forms/purges/old", `{"days": 12, "etag": "x"}`, 409, "the purge changed"},
		{"PATCH", "/v1/forms/purges/old", `{"name": "other"}`, 400, "\"name:is not"},
		{"PATCH", "/v1/forms/purges/old", `{"days": null}`, 400, "\"days:must"},
		{"PUT", "/v1/forms/purges/old?updateMask=days", `{}`, 400, "updateMask"},
		{"DELETE", "/v1/forms/purges/old?etag=x", "", 409, "the purge changed"},
		{"GET", "/v1/forms/purges", "", 200, `"days":11`},
	} {
		got := s.call(t, c.method, c.path, c.body)
		if got.code != c.code || !strings.Contains(unspaced.Replace(got.body), c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.code, got.body)
		}
	}
	for path, field := range map[string]string{"/v1/schedule": "schedule", "/v1/guards": "guards"} {
		conditional := withEtag(path)
		if got := s.call(t, "PATCH", conditional, `{}`); got.code != 200 || at(got.lines[0], field) == nil {
			t.Errorf("PATCH %s: %d %s", conditional, got.code, got.body)
		}
	}
}

// encoding/protojson adds spaces at random.
var unspaced = strings.NewReplacer(": ", ":", ", ", ",")

// Of many updates at the same time, on two replicas, exactly one succeeds with an etag: of the first ones ever, before
// anything is stored, and of later ones.
func TestUpdatesAtTheSameTime(t *testing.T) {
	t.Parallel()
	s, client, _ := purgeServer(t)
	other := serve(t, s.db, true)
	replicas := []cleanupd.Client{s.Client, other.Client}
	setPurge(t, client, loans())
	ctx := t.Context()
	for name, setting := range map[string]struct {
		etag   func() string
		update func(etag string, i int) error // i is 1 or more
	}{
		"schedule": {
			func() string {
				got, _ := s.GetSchedule(ctx, &cleanupv1.GetScheduleRequest{})
				return got.GetEtag()
			},
			func(etag string, i int) error {
				req := &cleanupv1.SetScheduleRequest{
					Schedule: &cleanupv1.Schedule{Cron: itoa(i) + " 4 * * *"},
					Etag:     etag,
				}
				if i%3 == 0 {
					req.UpdateMask = mask("cron")
				}
				_, err := replicas[i%2].SetSchedule(ctx, req)
				return err
			},
		},
		"guards": {
			func() string {
				got, _ := s.GetGuards(ctx, &cleanupv1.GetGuardsRequest{})
				return got.GetEtag()
			},
			func(etag string, i int) error {
				_, err := replicas[i%2].SetGuards(ctx, &cleanupv1.SetGuardsRequest{
					Guards: &cleanupv1.Guards{MinRows: proto.Int64(int64(i))},
					Etag:   etag,
				})
				return err
			},
		},
		"options": {
			func() string {
				got, _ := s.GetOptions(ctx, &cleanupv1.GetOptionsRequest{})
				return got.GetEtag()
			},
			func(etag string, i int) error {
				_, err := replicas[i%2].SetOptions(ctx, &cleanupv1.SetOptionsRequest{
					Options: &cleanupv1.Options{VisitorPurgeDelayDays: proto.Int32(int32(i))},
					Etag:    etag,
				})
				return err
			},
		},
		"purge": {
			func() string {
				got, _ := client.ListFormsPurges(ctx, &cleanupv1.ListFormsPurgesRequest{})
				return got.GetPurges()[0].GetEtag()
			},
			func(etag string, i int) error {
				_, err := client.SetFormsPurge(ctx, &cleanupv1.SetFormsPurgeRequest{
					Name:       "loans",
					Purge:      &cleanupv1.FormsPurge{Days: int32(i), Etag: etag},
					UpdateMask: mask("days"),
				})
				return err
			},
		},
	} {
		for round := range 2 {
			etag, failures := setting.etag(), make([]error, 10)
			var wg sync.WaitGroup
			for i := range failures {
				wg.Go(func() { failures[i] = setting.update(etag, 1+i+round*len(failures)) })
			}
			wg.Wait()
			succeeded := 0
			for _, err := range failures {
				if err == nil {
					succeeded++
					continue
				}
				wantCode(t, err, codes.Aborted)
			}
			if etag == "" || succeeded != 1 {
				t.Errorf("%s, round %d: %d updates succeeded with the etag %q", name, round, succeeded, etag)
			}
		}
	}
}
