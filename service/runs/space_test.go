package runs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// wideAudits inserts rows of one page each: some to keep, and some that are obsolete, before or after those.
func wideAudits(db *pgtest.DB, stay, gone int, goFirst bool) {
	db.Do(
		"ALTER TABLE XtkAudit ALTER sEntity TYPE text, ALTER sEntity SET STORAGE PLAIN, SET (autovacuum_enabled = off)")
	batches := []string{
		fmt.Sprintf("'2100-01-01' FROM generate_series(1, %d) i", stay),
		fmt.Sprintf("'2000-01-01' FROM generate_series(-%d, -1) i", gone),
	}
	if goFirst {
		batches[0], batches[1] = batches[1], batches[0]
	}
	for _, b := range batches {
		db.Do("INSERT INTO XtkAudit SELECT i, repeat('x', 7000), " + b)
	}
	db.Do("VACUUM ANALYZE XtkAudit")
}

// about reports whether got differs from want by at most a tenth.
func about(got *int64, want int64) bool {
	return got != nil && *got > want*9/10 && *got < want*11/10
}

// The effect of a task and of VACUUM on a table is reported: its size, dead and free bytes, and a remedy.
func TestSpace(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	const stay, went, page = 1_000, 9_000, 8192
	for _, c := range []struct {
		name        string
		goFirst     bool
		truncate    bool
		pgstattuple bool
	}{
		{"free at the end", false, true, false},
		{"kept at the end", false, false, false},
		{"free at the beginning", true, true, false},
		{"asked of pgstattuple", true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			suite.Except(t, suite.Long, "free at the beginning", "kept at the end")
			t.Parallel()
			db, _ := migrated(t)
			if c.pgstattuple {
				if db.Int("SELECT count(*) FROM pg_available_extensions WHERE name = 'pgstattuple'") == 0 {
					t.Skip("this PostgreSQL has no pgstattuple")
				}
				db.Superuser("CREATE EXTENSION pgstattuple; GRANT pg_stat_scan_tables TO neolane")
			}
			wideAudits(db, stay, went, c.goFirst)
			table, indexes := db.Int("SELECT pg_table_size('XtkAudit')"), db.Int("SELECT pg_indexes_size('XtkAudit')")
			m, work, _ := replica(t, db, "a", func(config *runs.Config) { config.VacuumTruncate = c.truncate })
			run := start(t, m, runs.Request{Tasks: []string{"audit-trail", "statistics"}})
			work()
			events := watch(t, m, run.ID)
			ended := events[len(events)-1].Run
			if ended.State != store.Succeeded || len(ended.Result("audit-trail").Space) != 1 {
				t.Fatalf("%s: %+v; %q", ended.State, ended.Result("audit-trail"), logs(events))
			}
			s := ended.Result("audit-trail").Space[0]
			if !strings.HasSuffix(s.Relation, `"xtkaudit"`) || s.RowsDeleted != went || s.TableBytesBefore != table ||
				s.IndexBytesBefore != indexes ||
				s.TableBytesAfter < table ||
				!about(s.DeadBytes, went*7040) {
				t.Errorf("deleted: %+v; it had %d and %d bytes", s, table, indexes)
			}
			s = ended.Result("statistics").Space[0]
			// VACUUM skips a page that a checkpoint is writing, in whichever database.
			if !strings.HasSuffix(s.Relation, `"xtkaudit"`) || s.RowsDeleted != 0 || s.DeadBytes == nil ||
				*s.DeadBytes > went*page/100 ||
				s.TableBytesAfter != db.Int("SELECT pg_table_size('XtkAudit')") {
				t.Errorf("vacuumed: %+v, %q", s, logs(events))
			}
			told := said(events, message.Warning, "xtkaudit", "are free", "pg_repack")
			switch givenBack := !c.goFirst && c.truncate; {
			case !givenBack && (s.TableBytesAfter < s.TableBytesBefore || !about(s.FreeBytes, went*page) || !told):
				t.Errorf("kept, but free: told %t, %+v", told, s)
			case givenBack && s.TableBytesAfter >= s.TableBytesBefore:
				// VACUUM returns only the pages after the last one that it skipped
				t.Errorf("given back: %+v", s)
			}
			first := ""
			for _, e := range events {
				if first == "" && e.Kind == store.LogLine && e.Task == "statistics" {
					first, _, _ = strings.Cut(e.Message, "\n")
				}
			}
			if !strings.Contains(first, "xtkaudit") {
				t.Errorf("vacuumed first: %s", first)
			}
		})
	}
}

// Tables that a task after statistics empties are vacuumed again, at the end of that task; others are not.
func TestSpaceBehindStatistics(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 100)
	db.Do("ANALYZE XtkSessionInfo; INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01')")
	m, work, _ := replica(t, db, "a", nil)
	work()
	for _, c := range []struct {
		tasks []string
		lines int
	}{{[]string{"audit-trail", "statistics", "sessions"}, 1}, {[]string{"audit-trail", "sessions"}, 0}} {
		run := start(t, m, runs.Request{Tasks: c.tasks})
		events := watch(t, m, run.ID)
		lines := 0
		for _, e := range events {
			if e.Kind == store.LogLine && e.Task == "sessions" && strings.Contains(e.Message, "  vacuuming") {
				lines += strings.Count(e.Message, "  vacuuming")
				if !strings.Contains(e.Message, "xtksessioninfo") {
					t.Errorf("the task sessions says: %s", e.Message)
				}
			}
		}
		ended := events[len(events)-1].Run
		if ended.State != store.Succeeded || lines != c.lines {
			t.Errorf("%v: %s, vacuumed %d times", c.tasks, ended.State, lines)
		}
		if space := ended.Result("sessions").Space; len(space) != 1 || space[0].RowsDeleted != 100 ||
			(c.lines == 0 && *space[0].DeadBytes == 0) {
			t.Errorf("%v: %+v", c.tasks, space)
		}
		sessions(db, 100)
	}
}
