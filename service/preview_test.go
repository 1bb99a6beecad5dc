package service_test

import (
	"slices"
	"testing"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// A dry run predicts, table by table, what the next run does, whether it deletes or updates rows or drops tables; gRPC
// and REST show the same. TestPreviewOfCampaignIsTheRun of cmd/cleanupd does this for all tasks.
func TestPreview(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s := serve(t, db, false)
	tasks := []string{"deliveries", "work-tables", "sessions"}
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: tasks, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	foreseen, all := map[string][3]int64{}, [3]int64{}
	for _, r := range dry.GetResults() {
		var sums [3]int64
		for _, p := range r.GetPreview() {
			switch p.GetAction() {
			case cleanupv1.PreviewAction_PREVIEW_ACTION_DELETE:
				sums[0] += p.GetRows()
			case cleanupv1.PreviewAction_PREVIEW_ACTION_UPDATE:
				sums[1] += p.GetRows()
			case cleanupv1.PreviewAction_PREVIEW_ACTION_DROP:
				sums[2] += p.GetTables()
			default:
				t.Errorf("%s: %v", r.GetTask(), p)
			}
			if p.GetTable() == "" || p.GetRule() == "" {
				t.Errorf("%s: a preview without a table or a rule: %v", r.GetTask(), p)
			}
		}
		if counts := [3]int64{r.GetRowsDeleted(), r.GetRowsUpdated(), r.GetTablesDropped()}; sums != counts {
			t.Errorf("%s: its tables add up to %d, not %d", r.GetTask(), sums, counts)
		}
		foreseen[r.GetTask()] = sums
		for i, n := range sums {
			all[i] += n
		}
	}
	if slices.Contains(all[:], 0) {
		t.Fatalf("%d rows would be deleted, %d updated, %d tables dropped", all[0], all[1], all[2])
	}
	rest := s.call(t, "GET", "/v1/runs/"+dry.GetId(), "")
	results, _ := at(rest.lines[0], "run", "results").([]any)
	tables := 0
	for _, r := range results {
		previews, _ := at(r, "preview").([]any)
		for _, p := range previews {
			if at(p, "action") == "PREVIEW_ACTION_DELETE" && at(p, "rows") != "0" && at(p, "table") != "" {
				tables++
			}
		}
	}
	if tables < 20 {
		t.Errorf("REST tells of %d tables: %s", tables, rest.body)
	}
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()}) // at the same moment
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range run.GetResults() {
		if did := [3]int64{
			r.GetRowsDeleted(), r.GetRowsUpdated(), r.GetTablesDropped(),
		}; foreseen[r.GetTask()] != did ||
			r.GetPreview() != nil {
			t.Errorf("%s did %d, foreseen were %d; a run has the preview %v", r.GetTask(), did, foreseen[r.GetTask()],
				r.GetPreview())
		}
	}
}

// A dry run succeeds although rows have dates that neither JSON nor a message can represent.
func TestPreviewOfStrangeDates(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do(`
INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
  VALUES (1, 0, 0, '0044-03-15 BC'), (2, 0, 0, '2020-01-01');
INSERT INTO XtkJob (iJobId) VALUES (1);
INSERT INTO XtkReject (iRejectId, iJobId, tsLog) VALUES (1, 5, '2020-01-01'), (2, 5, '20000-01-01');
INSERT INTO NmsGroup (iGroupId, iDeleteStatus, tsExpirationDate) VALUES (1, 1, '20000-01-01');
INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors) VALUES (1, 1, '0044-03-15 BC', 5)`)
	s := serve(t, db, false)
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{
		DryRun: true,
		Tasks:  []string{"visitors", "import-rejects", "lists-to-delete", "email-error-stats"},
	})
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, r := range dry.GetResults() {
		for _, p := range r.GetPreview() {
			if tables++; p.GetOldestTime() != nil && p.GetNewestTime() != nil {
				t.Errorf("%v", p)
			}
		}
	}
	if got := s.call(t, "GET", "/v1/runs/"+dry.GetId(), ""); tables != 4 || got.code != 200 {
		t.Errorf("%d tables; REST: %d %s", tables, got.code, got.body)
	}
}
