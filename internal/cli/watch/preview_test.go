package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/contexts"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// A preview is a table if all of its columns and some of the reason fit, and otherwise a list, which omits nothing.
func TestPreviewOnScreens(t *testing.T) {
	t.Parallel()
	day := func(year int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(year, 2, 28, 0, 0, 0, 0, time.UTC))
	}
	run := &cleanupv1.Run{Id: "ID", DryRun: true, Results: []*cleanupv1.TaskResult{{Preview: []*cleanupv1.TablePreview{
		{
			Table: `"public"."nmsbroadlogrcp"`, Action: cleanupv1.PreviewAction_PREVIEW_ACTION_DELETE, Rows: 16740,
			RowsTotal: 44000, RowsTotalEstimated: true, Bytes: 1 << 21, OldestTime: day(2020), NewestTime: day(2026),
			Rule:    "tsLastModified older than 180 days (2026-05-30 22:31 UTC)",
			Remarks: []string{"some are on hold", "others are locked"}, Partitions: 22,
			Names: []string{"nmsbroadlogrcp_2019_11", "nmsbroadlogrcp_2019_12", "nmsbroadlogrcp_2020_01", "another"},
		},
		{
			Table: `"public"."wkf12_3"`, Action: cleanupv1.PreviewAction_PREVIEW_ACTION_DROP, Tables: 1,
			BaselineRows: proto.Int64(2), Rule: strings.Repeat("a long rule, ", 30),
		},
	}}}}
	const list = `
"public"."nmsbroadlogrcp"
  delete 16,740 of ~44,000, 2.0 MiB, 2020-02-28 to
  2026-02-28
  tsLastModified older than 180 days (2026-05-30 22:31 UTC)
  22 partitions would be dropped whole:
  nmsbroadlogrcp_2019_11, nmsbroadlogrcp_2019_12,
  nmsbroadlogrcp_2020_01 and 19 more
  but some are on hold
  but others are locked
"public"."wkf12_3"
  drop 1, now 2, 0 B
  a long rule, a long rule, a long rule, a long rule, a long
  rule, a long rule, a long rule, a long rule, a long rule,
  a long rule, a long rule, a long rule, a long rule…
`
	for width, isList := range map[int]bool{0: false, 60: true, 80: true, 200: false} {
		var out strings.Builder
		s := &terminal.Screen{Writer: &out, Width: func() int { return width }}
		if err := printPreview(s, run, maxPreviewTables, ""); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if width == 60 && got != list {
			t.Errorf("%s, want %s", got, list)
		}
		if !isList && !strings.Contains(got, "\n\"public\".\"nmsbroadlogrcp\": some are on hold\n") {
			t.Errorf("on %d columns, without the remarks: %s", width, got)
		}
		if !strings.Contains(strings.Join(strings.Fields(got), " "), "22 partitions would be dropped whole: "+
			"nmsbroadlogrcp_2019_11, nmsbroadlogrcp_2019_12, nmsbroadlogrcp_2020_01 and 19 more") {
			t.Errorf("on %d columns, without whole names of partitions: %s", width, got)
		}
		if isList == strings.Contains(got, "HOW MANY") || !strings.Contains(got, "tsLastModified older than 180 days") {
			t.Errorf("on %d columns: %s", width, got)
		}
		for line := range strings.Lines(got) {
			if columns := len([]rune(line)) - 1; width > 0 && columns > width {
				t.Errorf("on %d columns a line has %d: %s", width, columns, line)
			}
		}
	}
}

// A preview shows the largest changes, and how to see the others.
func TestLongPreview(t *testing.T) {
	t.Parallel()
	run := &cleanupv1.Run{Id: "ID", DryRun: true, Results: []*cleanupv1.TaskResult{{}}}
	for i := range maxPreviewTables + 5 {
		p := &cleanupv1.TablePreview{Table: fmt.Sprintf("table%d", i), Rows: int64(i)}
		run.Results[0].Preview = append(run.Results[0].Preview, p)
	}
	server := &rpc.Server{Context: contexts.Context{Address: "HOST:PORT"}}
	for all, want := range map[bool]string{
		false: "\nand 5 more: cleanupd runs show ID --server HOST:PORT --all\n", true: "\ntable0 ",
	} {
		var out strings.Builder
		s := &terminal.Screen{Writer: &out, Width: func() int { return 0 }}
		if err := PrintRun(s, run, server, all, nil); err != nil || !strings.Contains(out.String(), want) ||
			all == strings.Contains(out.String(), "more: ") {
			t.Errorf("all: %t: %v, %s", all, err, out.String())
		}
	}
}

// A run promises to undo only what is in the trash.
func TestUndoOfWhatIsInTheTrash(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: seconds} }
	soon := &cleanupv1.TaskResult{Task: "policy/pay", RowsDeleted: 1, UndoExpireTime: at(3600)}
	late := &cleanupv1.TaskResult{Task: "policy/day", TablesDropped: 1, UndoExpireTime: at(90_000)}
	gone := &cleanupv1.TaskResult{Task: "policy/token", RowsDeleted: 30_991}
	idle := &cleanupv1.TaskResult{Task: "policy/idle", RowsUpdated: 1}
	const restore = ": cleanupd trash restore ID --server HOST:PORT\n"
	const lost = "What these tasks deleted is not in the trash: policy/token\n"
	for want, results := range map[string][]*cleanupv1.TaskResult{
		"": {gone, idle},
		"Undo until 1970-01-01T01:00:00Z" + restore:        {late, soon, idle},
		"Undo until 1970-01-02T01:00:00Z" + restore + lost: {gone, late},
	} {
		run := &cleanupv1.Run{Id: "ID", Undo: durationpb.New(time.Hour), EndTime: timestamppb.Now(), Results: results}
		var out strings.Builder
		s := &terminal.Screen{Writer: &out, Width: func() int { return 0 }}
		err := PrintRun(s, run, &rpc.Server{Context: contexts.Context{Address: "HOST:PORT"}}, true, nil)
		if _, undo, _ := strings.Cut(out.String(), ".\nUndo"); err != nil || want != "" && "Undo"+undo != want ||
			want == "" && undo != "" {
			t.Errorf("%v; %s, want at its end %s", err, out.String(), want)
		}
	}
}

// Numbers that a remark calls estimates are marked wherever they are shown.
func TestEstimatesAreMarked(t *testing.T) {
	t.Parallel()
	start := timestamppb.New(time.Unix(0, 0))
	task := func(name string, rows int64, remark string) *cleanupv1.TaskResult {
		return &cleanupv1.TaskResult{
			Task: name, State: cleanupv1.TaskState_TASK_STATE_SUCCEEDED, StartTime: start, RowsDeleted: rows, TablesDropped: 2,
			RowsUpdated: 3 * rows,
			Preview: []*cleanupv1.TablePreview{
				{
					Table: "of_" + name, Action: cleanupv1.PreviewAction_PREVIEW_ACTION_DELETE, Rows: rows,
					BaselineRows: proto.Int64(rows - 1), Remarks: []string{"some are on hold", remark},
					Rule: strings.Repeat("a long rule, ", 30),
				},
				{
					Table: "of_" + name, Action: cleanupv1.PreviewAction_PREVIEW_ACTION_UPDATE, Rows: 3 * rows,
					BaselineRows: proto.Int64(3 * rows), Remarks: []string{"some are on hold"},
				},
			},
		}
	}
	const why = "an estimate: rows that are deleted make other rows orphans"
	for remark, c := range map[string]struct{ shown, about string }{why: {"~", "about "}, "not an estimate": {}} {
		estimated := task("b", 2000, remark)
		run := &cleanupv1.Run{
			Id: "ID", State: cleanupv1.RunState_RUN_STATE_SUCCEEDED, DryRun: true, WhatIf: &cleanupv1.Options{},
			Results: []*cleanupv1.TaskResult{task("a", 1000, "others are locked"), estimated},
		}
		wide, narrow, live := &strings.Builder{}, &strings.Builder{}, &strings.Builder{}
		for out, width := range map[*strings.Builder]int{wide: 0, narrow: 40} {
			s := &terminal.Screen{Writer: out, Width: func() int { return width }}
			if err := PrintRun(s, run, &rpc.Server{Context: contexts.Context{Address: "HOST:PORT"}}, true, nil); err != nil {
				t.Fatal(err)
			}
		}
		v := NewView(&terminal.Screen{Writer: live, Width: func() int { return 0 }}, nil, false)
		for _, e := range []*cleanupv1.RunEvent{
			{Event: &cleanupv1.RunEvent_RunStarted{RunStarted: &cleanupv1.RunStarted{Run: run}}},
			{Event: &cleanupv1.RunEvent_TaskFinished{TaskFinished: &cleanupv1.TaskFinished{Result: estimated}}},
		} {
			if err := v.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		for out, texts := range map[*strings.Builder][]string{
			wide: {
				"a succeeded 1,000 3,000 2 ", "b succeeded " + c.shown + "2,000 6,000 2 ", "of_a delete 1,000 999 ",
				"of_b delete " + c.shown + "2,000 " + c.shown + "1,999 ", "delete or change " + c.about + "12,000 rows, 2 more",
				"Total: " + c.about + "3,000 rows would be deleted, 9,000 rows would be updated, 4 tables would be dropped",
			},
			narrow: {"of_a delete 1,000, now 999, ", "of_b delete " + c.shown + "2,000, now " + c.shown + "1,999, "},
			live: {
				"b succeeded, " + c.about + "2,000 rows would be deleted, 6,000 rows would be updated, 2 tables would be dropped",
			},
		} {
			got := strings.Join(strings.Fields(out.String()), " ")
			if strings.Contains(got, "of_a, of_a") || strings.Contains(got, "of_b, of_b") {
				t.Errorf("a table is named twice in %s", got)
			}
			for _, text := range texts {
				if !strings.Contains(got, text) {
					t.Errorf("%s: %q is not in %s", remark, text, got)
				}
			}
		}
	}
}

// With other options than the stored ones, the preview has the tables that differ, and the difference of all.
func TestPreviewOfOtherOptions(t *testing.T) {
	t.Parallel()
	preview := func(table string, rows, now int64) *cleanupv1.TablePreview {
		return &cleanupv1.TablePreview{
			Table: table, Action: cleanupv1.PreviewAction_PREVIEW_ACTION_DELETE, Rows: rows, BaselineRows: &now,
		}
	}
	run := &cleanupv1.Run{Id: "ID", DryRun: true, WhatIf: &cleanupv1.Options{}, Results: []*cleanupv1.TaskResult{{
		Preview: []*cleanupv1.TablePreview{preview("same", 70, 70), preview("more", 50, 20), preview("fewer", 0, 5)},
	}}}
	var out strings.Builder
	s := &terminal.Screen{Writer: &out, Width: func() int { return 0 }}
	if err := printPreview(s, run, maxPreviewTables, ": --all"); err != nil {
		t.Fatal(err)
	}
	const want = "With these options, a run would delete or change 120 rows, 25 more than with the stored ones.\n"
	if got := out.String(); !strings.Contains(got, want) || !strings.Contains(got, "\nmore ") ||
		!strings.Contains(got, "\nfewer ") || strings.Contains(got, "\nsame ") ||
		!strings.Contains(got, "and 1 more: --all") {
		t.Error(got)
	}
}
