package runs_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/badnet"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
)

// outcomes returns the lines of a JSON log about the ends of runs.
func outcomes(t *testing.T, log *lines) (ends []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["msg"] == "the run has ended" {
			ends = append(ends, fields)
		}
	}
	return ends
}

func logged(l *lines) func(*runs.Config) {
	return func(c *runs.Config) { c.Log = slog.New(slog.NewJSONHandler(l, nil)) }
}

// The outcome of a run is logged once, by the replica that ended it, and its level says whether it succeeded.
func TestOutcomesInTheLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(db *pgtest.DB)
		cancel  bool
		level   string
		fields  map[string]any
	}{
		"succeeded": {
			func(*pgtest.DB) {},
			false,
			"INFO",
			map[string]any{"state": "SUCCEEDED", "rows_deleted": 10.},
		},
		"failed": {
			func(db *pgtest.DB) { failing(db, "P0001", 1, 1_000) },
			false,
			"ERROR",
			map[string]any{"state": "FAILED", "rows_deleted": 0.},
		},
		"cancelled in queue": {
			func(*pgtest.DB) {},
			true,
			"WARN",
			map[string]any{"state": "CANCELLED", "error": "cancelled by request"},
		},
		"its COMMIT unheard":  {nil, false, "INFO", map[string]any{"state": "SUCCEEDED", "rows_deleted": 10.}},
		"given up by another": {tenFailedAttempts, false, "ERROR", map[string]any{"state": "FAILED"}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "failed", "its COMMIT unheard")
			t.Parallel()
			db := database(t)
			sessions(db, 10)
			log, other := &lines{}, &lines{}
			network := badnet.New(t, db.URL(), 0)
			own := pool(t, network.URL(db.URL()))
			m, work, stop := replica(t, db, "a", func(c *runs.Config) { logged(log)(c); c.Pool = own })
			watcher, _, _ := replica(t, db, "b", logged(other))
			run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
			if c.prepare != nil {
				c.prepare(db)
			} else {
				// The last transaction is the one that follows the end of the task.
				db.Do(
					`CREATE FUNCTION wait() RETURNS trigger
						LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
					CREATE TRIGGER wait BEFORE UPDATE ON cleanupd.run FOR EACH ROW WHEN (NEW.state = 'SUCCEEDED')
						EXECUTE FUNCTION wait()`,
				)
				go func() {
					db.Until(
						"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = " +
							"'PgSleep'",
					)
					network.CutAtCommit(badnet.AfterCommit)
				}()
			}
			if c.cancel {
				if _, err := m.Cancel(t.Context(), run.ID); err != nil {
					t.Fatal(err)
				}
			} else {
				work()
			}
			watch(t, watcher, run.ID)
			log.until(func() bool { return len(outcomes(t, log)) > 0 })
			stop()
			ends := outcomes(t, log)
			if len(ends) != 1 || ends[0]["level"] != c.level || ends[0]["run_id"] != run.ID ||
				len(outcomes(t, other)) != 0 {
				t.Fatalf("%v; the other replica: %v", ends, outcomes(t, other))
			}
			for name, want := range c.fields {
				if ends[0][name] != want {
					t.Errorf("%s is %v, want %v", name, ends[0][name], want)
				}
			}
			if _, has := ends[0]["error"]; has != (c.level != "INFO") {
				t.Errorf("%v", ends[0])
			}
		})
	}
}

// A replica that could not write to a run's log why it left the run does so as soon as it can.
func TestAReasonThatIsWrittenLate(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	rows := suite.Size(suite.Long, 300, 1_000)
	sessions(db, rows)
	release := holdLast(db, rows)
	network := badnet.New(t, db.URL(), 0)
	own := pool(t, network.URL(db.URL()))
	slow := func(c *runs.Config) { c.MaxRows, c.Limits.RowsPerSecond = 1, 100 }
	_, workA, _ := replica(t, db, "a", func(c *runs.Config) { slow(c); c.Pool = own })
	b, workB, _ := replica(t, db, "b", slow)
	run := start(t, b, runs.Request{Tasks: []string{"sessions"}})
	workA()
	untilDeleting(t, db, run.ID)
	network.Stall(3 * time.Second)
	network.Cut()
	workB()
	db.Until("SELECT count(*) FROM cleanupd.event WHERE body->>'Message' LIKE '%replica a released the run%'")
	release()
	events := watch(t, b, run.ID)
	checkFinished(t, events, int64(rows))
	if !said(events, message.Warning, "replica a stopped renewing its lease") ||
		!said(events, message.Warning, "replica a released the run: ", "see that the database server runs") {
		t.Errorf("it is not told: %q", logs(events))
	}
}
