package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// What a task did is told as far as it did anything.
func TestSummary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    *cleanupv1.TaskResult
		dry  bool
		says string
	}{
		{&cleanupv1.TaskResult{}, false, "succeeded"},
		{&cleanupv1.TaskResult{RowsDeleted: 1, RowsUpdated: 2, TablesDropped: 3}, false, "succeeded, 1 row deleted, 2 rows updated, 3 tables dropped"},
		{&cleanupv1.TaskResult{RowsDeleted: 9, RemoteDeliveriesLeft: 1}, false, "succeeded, 9 rows deleted, 1 delivery left on mid-sourcing servers"},
		{&cleanupv1.TaskResult{RemoteDeliveriesLeft: 2, Error: "why"}, true, "succeeded, 2 deliveries would be left on mid-sourcing servers: why"},
		{&cleanupv1.TaskResult{RowsDeleted: 9, RowsLeft: 1, Detail: "obsolete rows stay: 1 row refuses", Error: "why"}, false, "succeeded, 9 rows deleted; obsolete rows stay: 1 row refuses: why"},
	} {
		c.r.State = cleanupv1.TaskState_TASK_STATE_SUCCEEDED
		if got := summary(c.r, c.dry); got != c.says {
			t.Errorf("got %q, want %q", got, c.says)
		}
	}
}

// On a terminal progress stays on one line, however narrow, whatever is known about what is left; it says why a batch waits.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		columns int
		p       *cleanupv1.TaskProgress
		says    string
	}{
		{120, &cleanupv1.TaskProgress{RowsDeleted: 90, RowsExpected: proto.Int64(360), RowsPerSecond: 30}, "25 %, 9s left, 90 rows, 30 a second, nmsvisitor"},
		{120, &cleanupv1.TaskProgress{RowsDeleted: 900, RowsPerSecond: 0.2}, "visitors             900 rows, 0 a second, nmsvisitor"},
		{120, &cleanupv1.TaskProgress{}, "visitors             nmsvisitor"},
		{80, &cleanupv1.TaskProgress{RowsUpdated: 90, RowsExpected: proto.Int64(100), ThrottledBy: "rows per second"}, "90 %, waiting: rows per second, 90 rows"},
		{30, &cleanupv1.TaskProgress{RowsDeleted: 90}, "visitors"},
		{1, &cleanupv1.TaskProgress{RowsDeleted: 90}, ""},
	} {
		var out strings.Builder
		v := &view{w: &out, columns: func() int { return c.columns }, started: &cleanupv1.TaskStarted{Position: 11, TaskCount: 26}}
		c.p.Task, c.p.Object = "visitors", "nmsvisitor"
		for range 2 {
			if err := v.event(&cleanupv1.RunEvent{Event: &cleanupv1.RunEvent_TaskProgress{TaskProgress: c.p}}); err != nil {
				t.Fatal(err)
			}
		}
		drawn := strings.Split(out.String(), "\r\x1b[K")
		if len(drawn) != 2 || !strings.Contains(drawn[1], c.says) || utf8.RuneCountInString(drawn[1]) >= max(c.columns, 1) {
			t.Errorf("on %d columns: %q", c.columns, out.String())
		}
		out.Reset()
		if err := v.line("done"); err != nil || out.String() != "\r\x1b[Kdone\n" {
			t.Errorf("the next line: %q, %v", out.String(), err)
		}
	}
}
