package runs_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

// What replicas of the previous version have stored as JSON is read during a rolling update: a preview with its guards,
// a saved plan, the settings of the guards, and the event log. The texts here are as that version wrote them; a field
// of Go that is renamed must not change them.
func TestReadsWhatThePreviousVersionStored(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	work()
	id := dryRun(t, m, "sessions")
	db.Do(
		`UPDATE cleanupd.task SET preview = '[{"Table": "\"public\".\"xtksessioninfo\"", "Action": "DELETE", "Rows": 7,
			"RowsTotal": 8, "Bytes": 9, "Rule": "old", "RowsNow": 6, "Remarks": ["a remark"],
			"Guards": [{"Guard": "share", "Table": "\"public\".\"xtksessioninfo\"", "Number": 7, "Most": 5}]}]'
		WHERE run_id = $1::text::uuid AND name = 'sessions'`,
		id,
	)
	db.Do(
		`INSERT INTO cleanupd.guards (settings) VALUES ('{"MinRows": 1, "MinProcessInstances": 2, "MaxSharePercent": 3,
		"Cutoff": false, "MaxGrowth": 4, "MaxTables": 5, "MaxDropPercent": 6, "MaxClockDifference": 7, "MaxIdle": 8}')`,
	)
	db.Do(
		`UPDATE cleanupd.event SET body = '{"Kind": "log", "Level": "WARNING", "Task": "sessions", "Message": "a message"}'
		WHERE run_id = $1::text::uuid AND sequence = 2`,
		id,
	)

	run, err := m.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	previews := run.Result("sessions").Preview
	if len(previews) != 1 {
		t.Fatalf("got %d previews, want 1", len(previews))
	}
	if p := previews[0]; p.Rows != 7 || p.RowsTotal != 8 || p.Bytes != 9 || p.Rule != "old" || *p.BaselineRows != 6 {
		t.Errorf("got preview %+v", p)
	}
	want := guard.Trip{Guard: guard.Share, Table: `"public"."xtksessioninfo"`, Number: 7, Limit: 5}
	if trips := previews[0].Guards; len(trips) != 1 || trips[0] != want {
		t.Errorf("got guards %v, want %v", trips, want)
	}

	limits, _, err := m.Guards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (guard.Limits{
		MinRows:             1,
		MinProcessInstances: 2,
		MaxSharePercent:     3,
		MaxGrowth:           4,
		MaxTables:           5,
		MaxDropPercent:      6,
		MaxClockDifference:  7,
		MaxIdle:             8,
		First:               true, // not stored yet
	}); limits != want {
		t.Errorf("got limits %+v, want %+v", limits, want)
	}

	events := watch(t, m, id)
	if e := events[1]; e.Kind != store.LogLine || e.Task != "sessions" || e.Message != "a message" ||
		e.Code != "" || e.Params != nil {
		t.Errorf("got event %+v", e)
	}
}
