package watch

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// The summary of a task leaves out counts that are 0.
func TestSummary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r      *cleanupv1.TaskResult
		dryRun bool
		says   string
	}{
		{&cleanupv1.TaskResult{}, false, ""},
		{
			&cleanupv1.TaskResult{RowsDeleted: 1234, RowsUpdated: 2, TablesDropped: 3},
			false,
			", 1,234 rows deleted, 2 rows updated, 3 tables dropped",
		},
		{
			&cleanupv1.TaskResult{RowsDeleted: 9, RemoteDeliveriesRetained: 1},
			false,
			", 9 rows deleted, 1 delivery retained on mid-sourcing servers",
		},
		{
			&cleanupv1.TaskResult{RemoteDeliveriesRetained: 2, Error: "why"},
			true,
			", 2 deliveries would be retained on mid-sourcing servers: why",
		},
		{
			&cleanupv1.TaskResult{
				RowsDeleted:  9,
				RowsRetained: 1,
				Detail:       "1 obsolete row failed",
				Error:        "why",
			},
			false,
			", 9 rows deleted; 1 obsolete row failed: why",
		},
	} {
		if got := summary(c.r, c.dryRun, estimates{}, nil); got != c.says {
			t.Errorf("got %q, want %q", got, c.says)
		}
	}
}

// On a terminal progress takes two lines, however narrow it is: a bar for the task, with the reason why a batch waits,
// and one for the run.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		columns   int
		p         *cleanupv1.TaskProgress
		task, run string
	}{
		{
			120,
			&cleanupv1.TaskProgress{
				RowsDeleted:   1090,
				RowsExpected:  proto.Int64(4360),
				RowsPerSecond: 30,
			},
			"[11/20] visitors             [#####---------------] 25 %, 1m49s left, 1,090 rows, 30 a second, nmsvisitor",
			"the run                      [##########----------] 51 %, 2,090 rows, 2.0 s",
		},
		{
			120,
			&cleanupv1.TaskProgress{
				RowsRestored:  900,
				RowsExpected:  proto.Int64(800),
				RowsPerSecond: 2,
			},
			"[11/20] visitors             [####################] 100 %, 900 rows, 2 a second, nmsvisitor",
			"the run                      [###########---------] 55 %, 1,900 rows, 2.0 s",
		},
		{
			120,
			&cleanupv1.TaskProgress{},
			"[11/20] visitors             [--------------------] nmsvisitor",
			"the run                      [##########----------] 50 %, 1,000 rows, 2.0 s",
		},
		{
			60,
			&cleanupv1.TaskProgress{
				RowsUpdated:  90,
				RowsExpected: proto.Int64(100),
				ThrottledBy:  &cleanupv1.Throttle{Reason: cleanupv1.ThrottleReason_THROTTLE_REASON_ROW_RATE},
			},
			"[11/20] visitors             [#######-] 90 %, waiting: row ",
			"the run                      [####----] 55 %, 1,090 rows, 2",
		},
		{
			30,
			&cleanupv1.TaskProgress{RowsDeleted: 90},
			"[11/20] visitors             ",
			"the run                      ",
		},
		{1, &cleanupv1.TaskProgress{RowsDeleted: 90}, "", ""},
	} {
		var out strings.Builder
		v := &View{
			Screen:    &terminal.Screen{Writer: &out, Width: func() int { return c.columns }, Moves: true},
			startTime: time.Unix(10, 0),
			task:      &cleanupv1.TaskStarted{Position: 11, TaskCount: 20},
			rows:      1000,
		}
		c.p.Task, c.p.Object = "visitors", "nmsvisitor"
		for range 2 {
			e := &cleanupv1.RunEvent{
				Time:  timestamppb.New(time.Unix(12, 0)),
				Event: &cleanupv1.RunEvent_TaskProgress{TaskProgress: c.p},
			}
			if err := v.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		const erased = "\r\x1b[K\x1b[A\x1b[K"
		drawn := c.task + "\n" + c.run
		if out.String() != drawn+erased+drawn {
			t.Errorf("on %d columns: %q", c.columns, out.String())
		}
		out.Reset()
		if err := v.Note("done"); err != nil || out.String() != erased+"done\n" {
			t.Errorf("the next line: %q, %v", out.String(), err)
		}
	}
}

// A task that is skipped says why, if its log does.
func TestSkippedTask(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	v := NewView(&terminal.Screen{Writer: &out, Width: func() int { return 0 }}, nil, false)
	for range 2 {
		skipped := &cleanupv1.TaskResult{Task: "policy/events", State: cleanupv1.TaskState_TASK_STATE_SKIPPED}
		for _, e := range []*cleanupv1.RunEvent{
			{Event: &cleanupv1.RunEvent_TaskStarted{TaskStarted: &cleanupv1.TaskStarted{Position: 9, TaskCount: 14}}},
			{Event: &cleanupv1.RunEvent_Log{Log: &cleanupv1.LogEntry{
				Task: skipped.GetTask(), Level: cleanupv1.LogLevel_LOG_LEVEL_INFO, Message: "the role lacks rights",
			}}},
			{Event: &cleanupv1.RunEvent_TaskFinished{TaskFinished: &cleanupv1.TaskFinished{Result: skipped}}},
		} {
			if out.Len() > 0 && e.GetLog() != nil {
				continue // the second task has no log
			}
			if err := v.Event(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := "[ 9/14] policy/events        skipped; the role lacks rights\n[ 9/14] policy/events        skipped\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// A warning names its task, if it has one.
func TestLogOfARun(t *testing.T) {
	t.Parallel()
	for task, want := range map[string]string{"visitors": "        visitors: careful\n", "": "        careful\n"} {
		var out strings.Builder
		v := NewView(&terminal.Screen{Writer: &out, Width: func() int { return 80 }}, nil, false)
		err := v.Event(&cleanupv1.RunEvent{Event: &cleanupv1.RunEvent_Log{
			Log: &cleanupv1.LogEntry{Task: task, Level: cleanupv1.LogLevel_LOG_LEVEL_WARNING, Message: "careful"},
		}})
		if err != nil || out.String() != want {
			t.Errorf("task %q: %q, %v", task, out.String(), err)
		}
	}
}

// A dry run and a run say what became of partitions, and name them; rows on hold are retained.
func TestPartitionsOfARun(t *testing.T) {
	t.Parallel()
	finished := func(r *cleanupv1.TaskResult, dryRun bool) string {
		var out strings.Builder
		v := NewView(&terminal.Screen{Writer: &out, Width: func() int { return 0 }}, nil, false)
		r.Task, r.State = "policy/events", cleanupv1.TaskState_TASK_STATE_SUCCEEDED
		r.StartTime, r.PartitionsRemoved, r.RowsOnHold = timestamppb.New(time.Unix(0, 0)), 4, 2
		run := &cleanupv1.Run{Id: "ID", DryRun: dryRun, Results: []*cleanupv1.TaskResult{r}}
		var events []*cleanupv1.RunEvent
		add := func(e *cleanupv1.RunEvent) { events = append(events, e) }
		add(&cleanupv1.RunEvent{Event: &cleanupv1.RunEvent_RunStarted{RunStarted: &cleanupv1.RunStarted{Run: run}}})
		add(&cleanupv1.RunEvent{Event: &cleanupv1.RunEvent_TaskStarted{TaskStarted: &cleanupv1.TaskStarted{}}})
		for i := range 4 {
			if !dryRun {
				add(&cleanupv1.RunEvent{Event: &cleanupv1.RunEvent_Log{Log: &cleanupv1.LogEntry{
					Task: r.GetTask(), Level: cleanupv1.LogLevel_LOG_LEVEL_INFO, Code: "PARTITION_DETACHED",
					Params: map[string]string{"table": fmt.Sprintf("events_%d", i)},
				}}})
			}
		}
		add(&cleanupv1.RunEvent{Event: &cleanupv1.RunEvent_TaskFinished{TaskFinished: &cleanupv1.TaskFinished{Result: r}}})
		add(&cleanupv1.RunEvent{Event: &cleanupv1.RunEvent_RunFinished{RunFinished: &cleanupv1.RunFinished{Run: run}}})
		for _, e := range events {
			if err := v.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	dry := finished(&cleanupv1.TaskResult{Preview: []*cleanupv1.TablePreview{{
		Action: cleanupv1.PreviewAction_PREVIEW_ACTION_DETACH, Partitions: 4, Names: []string{"events_0"},
	}}}, true)
	for _, text := range []string{
		"succeeded, 4 partitions would be detached", "WOULD DROP PARTITIONS WOULD RETAIN", " 0 4 would be detached 2 ",
	} {
		if !strings.Contains(dry, text) {
			t.Errorf("%q is not in %s", text, dry)
		}
	}
	run := finished(&cleanupv1.TaskResult{}, false)
	for _, text := range []string{
		"succeeded, 4 partitions detached", "DROPPED PARTITIONS RETAINED", " 0 4 detached 2 ",
		"policy/events: 4 partitions detached: events_0, events_1, events_2 and 1 more",
	} {
		if !strings.Contains(run, text) {
			t.Errorf("%q is not in %s", text, run)
		}
	}
}

// The errors of a task are one line, each with its own end.
func TestTaskWithSeveralErrors(t *testing.T) {
	t.Parallel()
	r := &cleanupv1.TaskResult{Error: "the rest was skipped\n2 of 2 rows failed"}
	if text := summary(r, false, estimates{}, nil); text != ": the rest was skipped; 2 of 2 rows failed" {
		t.Error(text)
	}
}

// Where lines are not redrawn, progress without figures says what is being worked on.
func TestProgressLine(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]*cleanupv1.TaskProgress{
		"working on token": {Object: "token"},
		"working":          {}, // before it has come to a table
		"waiting: blocking": {ThrottledBy: &cleanupv1.Throttle{
			Reason: cleanupv1.ThrottleReason_THROTTLE_REASON_BLOCKING,
		}},
		"8 rows, 4 a second":      {RowsDeleted: 8, RowsPerSecond: 4},
		"8 rows, 4 a second, log": {RowsDeleted: 8, RowsPerSecond: 4, Object: "log"},
	} {
		var out strings.Builder
		v := &View{
			Screen: &terminal.Screen{Writer: &out, Width: func() int { return 0 }},
			task:   &cleanupv1.TaskStarted{Position: 12, TaskCount: 12},
		}
		p.Task = "policy/token"
		e := &cleanupv1.RunEvent{Event: &cleanupv1.RunEvent_TaskProgress{TaskProgress: p}}
		if err := v.Event(e); err != nil || out.String() != "[12/12] policy/token         "+want+"\n" {
			t.Errorf("%q, %v; want %q", out.String(), err, want)
		}
	}
}

// An unknown size, such as that of a partition that was dropped, is empty.
func TestUnknownSizes(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	sizes := []*cleanupv1.TableSpace{{Table: "event_2019", DeadBytes: proto.Int64(0)}}
	if err := printTableSizes(terminal.ScreenOf(&out), sizes, 1, ""); err != nil || strings.Contains(out.String(), "?") {
		t.Errorf("%v %s", err, out.String())
	}
}

// On a terminal, the error of a task is printed once: by the view, unless the view has missed it.
func TestErrorsOfTasks(t *testing.T) {
	t.Parallel()
	for withErrors, want := range map[bool]string{
		false: "task a failed: one\ntwo; task b failed: three",
		true:  "task a failed; task b failed: three",
	} {
		v := NewView(&terminal.Screen{Writer: io.Discard, Width: func() int { return 0 }}, nil, false)
		v.WithErrors = withErrors
		events := []*cleanupv1.RunEvent{
			{Event: &cleanupv1.RunEvent_TaskFinished{TaskFinished: &cleanupv1.TaskFinished{Result: &cleanupv1.TaskResult{
				Task: "a", State: cleanupv1.TaskState_TASK_STATE_FAILED, Error: "one\ntwo",
			}}}},
			{Event: &cleanupv1.RunEvent_RunFinished{RunFinished: &cleanupv1.RunFinished{}}},
		}
		run := &Run{receive: func() (e *cleanupv1.RunEvent, err error) {
			if len(events) == 0 {
				return nil, status.Error(codes.Internal, "task a failed: one\ntwo\ntask b failed: three")
			}
			e, events = events[0], events[1:]
			return e, nil
		}}
		joined, ok := run.Follow(v).(interface{ Unwrap() []error })
		if !ok {
			t.Fatal("it is not an error for each task")
		}
		var texts []string
		for _, err := range joined.Unwrap() {
			texts = append(texts, status.Convert(err).Message())
		}
		if got := strings.Join(texts, "; "); got != want {
			t.Errorf("with errors %t: got %q, want %q", withErrors, got, want)
		}
	}
}
