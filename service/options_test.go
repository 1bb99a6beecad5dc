package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

var defaults = &cleanupv1.Options{
	StorageOptimization:              cleanupv1.StorageOptimization_STORAGE_OPTIMIZATION_VACUUM_ANALYZE.Enum(),
	TrackingStatPurgeDelayDays:       proto.Int32(365),
	TrackingLogPurgeDelayDays:        proto.Int32(365),
	BroadLogPurgeDelayDays:           proto.Int32(180),
	RecycledDeliveryPurgeDelayDays:   proto.Int32(7),
	RejectsPurgeDelayDays:            proto.Int32(180),
	VisitorPurgeDelayDays:            proto.Int32(30),
	PropositionPurgeDelayDays:        proto.Int32(365),
	EventPurgeDelayDays:              proto.Int32(30),
	EventHistoPurgeDelayDays:         proto.Int32(365),
	AuditTrailPurgeDelayDays:         proto.Int32(180),
	AppSubscriptionRcpPurgeDelayDays: proto.Int32(180),
}

func (s *server) options(t *testing.T) *cleanupv1.GetOptionsResponse {
	t.Helper()
	got, err := s.GetOptions(t.Context(), &cleanupv1.GetOptionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestGetOptions(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	got := s.options(t)
	if !proto.Equal(got.GetOptions(), defaults) || !proto.Equal(got.GetDefaults(), defaults) ||
		len(got.GetCustomized().GetPaths()) != 0 ||
		got.GetEtag() == "" {
		t.Errorf("without anything stored: %v", got)
	}
	s.db.Do(
		`INSERT INTO XtkOption (iOptionId, sName, iLongValue, tsTimeStampValue)
			VALUES (1, 'NmsCleanup_VisitorPurgeDelay', 30, NULL), (2, 'NmsCleanup_BroadLogPurgeDelay', 172799, NULL),
		(3, 'XtkCleanup_NoStats', 7, NULL), (4, 'NmsCleanup_LastCleanup', 0, '2026-01-02 03:04:05Z')`,
	)
	before := got.GetEtag()
	got = s.options(t)
	o := got.GetOptions()
	if o.VisitorPurgeDelayDays != nil || o.GetBroadLogPurgeDelayDays() != 1 ||
		o.GetStorageOptimization() != cleanupv1.StorageOptimization_STORAGE_OPTIMIZATION_NONE ||
		o.GetLastCleanupTime().GetSeconds() != 1767323045 {
		t.Errorf("in force: %v", o)
	}
	if want := []string{
		"storage_optimization", "broad_log_purge_delay_days", "visitor_purge_delay_days", "last_cleanup_time",
	}; !slices.Equal(got.GetCustomized().GetPaths(), want) {
		t.Errorf("customized: %v", got.GetCustomized().GetPaths())
	}
	if got.GetEtag() == before || len(got.GetInvalid()) != 2 || got.GetInvalid()[0].GetStoredValue() != 7 ||
		got.GetInvalid()[1].GetOption() != "NmsCleanup_VisitorPurgeDelay" {
		t.Errorf("invalid: %v", got.GetInvalid())
	}
}

func TestSetOptions(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(
		"DROP SEQUENCE XtkNewId; INSERT INTO XtkOption (iOptionId, sName, iDataType, iLongValue) VALUES (7, " +
			"'NmsCleanup_EventPurgeDelay', 14, 30), (-3, 'x', 6, 0)",
	)
	set := func(req *cleanupv1.SetOptionsRequest) *cleanupv1.Options {
		t.Helper()
		got, err := s.SetOptions(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got.GetOptions(), s.options(t).GetOptions()) {
			t.Errorf("the answer differs from what is in force: %v", got)
		}
		return got.GetOptions()
	}
	// Without a mask the fields that are set change.
	got := set(&cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{
		VisitorPurgeDelayDays: proto.Int32(24855), EventPurgeDelayDays: proto.Int32(5),
		StorageOptimization: cleanupv1.StorageOptimization_STORAGE_OPTIMIZATION_ANALYZE.Enum(),
	}})
	if got.GetVisitorPurgeDelayDays() != 24855 || got.GetEventPurgeDelayDays() != 5 ||
		got.GetStorageOptimization() != cleanupv1.StorageOptimization_STORAGE_OPTIMIZATION_ANALYZE {
		t.Errorf("in force: %v", got)
	}
	rows := s.db.Strings(
		"SELECT iOptionId || ' ' || sName || ' ' || iDataType || ' ' || iLongValue FROM XtkOption WHERE sName <> 'x' " +
			"ORDER BY sName",
	)
	if want := []string{
		"7 NmsCleanup_EventPurgeDelay 14 432000", "-5 NmsCleanup_VisitorPurgeDelay 3 2147472000",
		"-4 XtkCleanup_NoStats 3 2",
	}; !slices.Equal(rows, want) {
		t.Errorf("stored: %q", rows)
	}
	// With a mask only the fields that it names change, and absent ones are reset to their defaults.
	got = set(&cleanupv1.SetOptionsRequest{
		Options: &cleanupv1.Options{EventPurgeDelayDays: proto.Int32(9), RejectsPurgeDelayDays: proto.Int32(1)},
		UpdateMask: &fieldmaskpb.FieldMask{
			Paths: []string{"rejects_purge_delay_days", "visitor_purge_delay_days", "storage_optimization"},
		},
	})
	if got.GetEventPurgeDelayDays() != 5 || got.GetRejectsPurgeDelayDays() != 1 ||
		got.GetVisitorPurgeDelayDays() != 30 ||
		got.GetStorageOptimization() != cleanupv1.StorageOptimization_STORAGE_OPTIMIZATION_VACUUM_ANALYZE {
		t.Errorf("in force: %v", got)
	}
	if n := s.db.Int(
		"SELECT count(*) FROM XtkOption WHERE sName IN ('NmsCleanup_VisitorPurgeDelay', 'XtkCleanup_NoStats')",
	); n != 0 {
		t.Errorf("%d rows of options that were reset are left", n)
	}
	set(&cleanupv1.SetOptionsRequest{}) // nothing to change
}

// An option that is stored as a text keeps its type, and the new value takes effect.
func TestOptionsInTexts(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(
		`INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue, iLongValue)
			VALUES (1, 'NmsCleanup_VisitorPurgeDelay', 6, ' 172800 ', 30), (2, 'NmsCleanup_BroadLogPurgeDelay', 6,
			'a year', 86400),
		(3, 'XtkCleanup_NoStats', 6, '2', 0), (4, 'NmsCleanup_LastCleanup', 6, '2026-01-01', 0), (5,
			'NmsCleanup_EventPurgeDelay', 3, '1', 86400), (6, 'NmsCleanup_RejectsPurgeDelay', 6, NULL, 86400)`,
	)
	got := s.options(t)
	o := got.GetOptions()
	if o.GetVisitorPurgeDelayDays() != 2 || o.BroadLogPurgeDelayDays != nil || o.RejectsPurgeDelayDays != nil ||
		o.GetEventPurgeDelayDays() != 1 ||
		o.GetLastCleanupTime() != nil ||
		o.GetStorageOptimization() != cleanupv1.StorageOptimization_STORAGE_OPTIMIZATION_ANALYZE {
		t.Errorf("in force: %v", o)
	}
	var invalid []string
	for _, i := range got.GetInvalid() {
		invalid = append(invalid, i.GetField())
	}
	if want := []string{"broad_log_purge_delay_days", "rejects_purge_delay_days", "last_cleanup_time"}; !slices.Equal(
		invalid, want,
	) ||
		!strings.Contains(got.GetInvalid()[0].GetReason(), `"a year"`) {
		t.Errorf("invalid: %v", got.GetInvalid())
	}
	set, err := s.SetOptions(t.Context(), &cleanupv1.SetOptionsRequest{
		Options: &cleanupv1.Options{BroadLogPurgeDelayDays: proto.Int32(9), EventPurgeDelayDays: proto.Int32(8)},
	})
	if err != nil || set.GetOptions().GetBroadLogPurgeDelayDays() != 9 ||
		set.GetOptions().GetEventPurgeDelayDays() != 8 ||
		set.GetEtag() == got.GetEtag() {
		t.Errorf("set: %v, %v", set, err)
	}
	rows := s.db.Strings(
		"SELECT concat_ws(' ', iOptionId, iDataType, sStringValue) FROM XtkOption WHERE iOptionId IN (2, 5) ORDER BY 1")
	if want := []string{"2 6 777600", "5 3 1"}; !slices.Equal(rows, want) {
		t.Errorf("stored: %q", rows)
	}
}

func TestSetOptionsFromTheApplicationsSequence(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do("INSERT INTO XtkOption (iOptionId, sName) VALUES (1000, 'taken')")
	if _, err := s.SetOptions(
		t.Context(), &cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{VisitorPurgeDelayDays: proto.Int32(1)}},
	); err != nil {
		t.Fatal(err)
	}
	if id := s.db.Int("SELECT iOptionId FROM XtkOption WHERE sName LIKE 'Nms%'"); id != 1001 {
		t.Errorf("the new row has the id %d", id)
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	mask := func(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }
	for _, c := range []struct {
		req    *cleanupv1.SetOptionsRequest
		fields []string
	}{
		{
			&cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{
				VisitorPurgeDelayDays:  proto.Int32(0),
				EventPurgeDelayDays:    proto.Int32(-1),
				RejectsPurgeDelayDays:  proto.Int32(24856),
				BroadLogPurgeDelayDays: proto.Int32(5),
			}},
			[]string{
				"options.rejects_purge_delay_days", "options.visitor_purge_delay_days",
				"options.event_purge_delay_days",
			},
		},
		{
			&cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{
				StorageOptimization: cleanupv1.StorageOptimization_STORAGE_OPTIMIZATION_UNSPECIFIED.Enum(),
			}},
			[]string{"options.storage_optimization"},
		},
		{
			&cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{StorageOptimization: cleanupv1.StorageOptimization(
				9).Enum()}},
			[]string{"options.storage_optimization"},
		},
		{
			&cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{LastCleanupTime: timestamppb.Now()}},
			[]string{"options.last_cleanup_time"},
		},
		{
			&cleanupv1.SetOptionsRequest{UpdateMask: mask("last_error_stat_coalesce_time", "nothing")},
			[]string{"update_mask.paths[1]", "options.last_error_stat_coalesce_time"},
		},
	} {
		_, err := s.SetOptions(t.Context(), c.req)
		_, bad := wantCode(t, err, codes.InvalidArgument)
		var got []string
		for _, v := range bad.GetFieldViolations() {
			got = append(got, v.GetField())
			// the values as the caller has to give them
			if v.GetField() == "options.storage_optimization" &&
				!strings.Contains(v.GetDescription(), " STORAGE_OPTIMIZATION_NONE ") {
				t.Errorf("the values are not told: %s", v.GetDescription())
			}
		}
		if !slices.Equal(got, c.fields) {
			t.Errorf("violations %v, want %v", got, c.fields)
		}
	}
	if n := s.db.Int("SELECT count(*) FROM XtkOption"); n != 0 {
		t.Errorf("%d options were stored", n)
	}
	s.db.Do("DROP TABLE XtkOption")
	_, err := s.SetOptions(t.Context(),
		&cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{VisitorPurgeDelayDays: proto.Int32(1)}})
	wantCode(t, err, codes.FailedPrecondition)
}

// Over REST a number that does not fit into 32 bits is reported like any other that is too large.
func TestOptionsBeyondTheirBits(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	a := s.call(t, "PATCH", "/v1/options",
		`{"visitorPurgeDelayDays": 3000000000, "eventPurgeDelayDays": "-99999999999", "rejectsPurgeDelayDays": 1e30, `+
			`"broadLogPurgeDelayDays": 5}`)
	for _, field := range []string{"visitorPurgeDelayDays", "eventPurgeDelayDays", "rejectsPurgeDelayDays"} {
		if a.code != 400 || !strings.Contains(a.body, `"field":"`+field+`"`) {
			t.Errorf("%s is not told of: %d %s", field, a.code, a.body)
		}
	}
	if strings.Contains(a.body, "broad_log") || s.db.Int("SELECT count(*) FROM XtkOption") != 0 {
		t.Error(a.body)
	}
	for _, body := range []string{
		`{"visitorPurgeDelayDays": 1.5}`, `{"visitorPurgeDelayDays": "NaN"}`,
		`{"visitorPurgeDelayDays": 3000000000, "visitor": 1}`, `[3000000000]`,
	} {
		if a := s.call(t, "PATCH", "/v1/options", body); a.code != 400 {
			t.Errorf("%s: %d %s", body, a.code, a.body)
		}
	}
}

// The error names the session that holds the lock of the options.
func TestSquattedOptions(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	mallory := s.db.Role("mallory")
	pid := s.db.For(mallory).Hold("SELECT pg_advisory_xact_lock(x'6f7074696f6e73'::bigint)").Conn().PgConn().PID()
	_, err := s.SetOptions(t.Context(),
		&cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{VisitorPurgeDelayDays: proto.Int32(60)}})
	wantCode(t, err, codes.Unavailable)
	if told := fmt.Sprintf("process %d of the role %q", pid, mallory); err == nil ||
		!strings.Contains(err.Error(), told) {
		t.Errorf("%v, want %s", err, told)
	}
}
