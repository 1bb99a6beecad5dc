package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
)

// counted is a run in the output of preview -o json and runs -o json.
type counted struct {
	Results []struct{ Task, RowsDeleted, RowsUpdated, TablesDropped string }
}

func (c counted) of() map[string]string {
	found := map[string]string{}
	for _, r := range c.Results {
		found[r.Task] = fmt.Sprintf("%s deleted, %s updated, %s dropped", r.RowsDeleted, r.RowsUpdated, r.TablesDropped)
	}
	return found
}

// A preview without a server of a Campaign database counts, task by task, what a run then does.
func TestPreviewOfCampaignIsTheRun(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := campaign(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// as of an hour ago, so that no row becomes obsolete between the preview and the run
	err = campaigndb.Fill(t.Context(), conn.Conn(), 1_000, 1, time.Now().Add(-time.Hour))
	conn.Release()
	if err != nil {
		t.Fatal(err)
	}
	var previewed struct{ Run counted }
	code, out, errs := cleanupd(t, "preview", "-o", "json", "--database-url", db.URL())
	if err := json.Unmarshal([]byte(out), &previewed); code != 0 || err != nil {
		t.Fatalf("%d %v %s", code, err, errs)
	}
	if code, _, errs := cleanupd(t, "run", "--database-url", db.URL()); code != 0 {
		t.Fatal(code, errs)
	}
	var listed struct{ Runs []counted }
	code, out, errs = cleanupd(t, "runs", "-o", "json", "--limit", "1", "--database-url", db.URL())
	if err := json.Unmarshal([]byte(out), &listed); code != 0 || err != nil || len(listed.Runs) != 1 {
		t.Fatalf("%d %v %s %s", code, err, out, errs)
	}
	run := listed.Runs[0].of()
	if len(run) != len(tasks.Pipeline) || strings.HasPrefix(run["deliveries"], "0 ") {
		t.Errorf("the run has done nothing: %v", run)
	}
	if diff := cmp.Diff(run, previewed.Run.of()); diff != "" {
		t.Errorf("the preview differs from the run (-run +preview):\n%s", diff)
	}
}

// A preview of a hot standby shows the same as one of its primary.
func TestPreviewOfAHotStandby(t *testing.T) {
	t.Parallel()
	db, primary, standby := pgtest.PrivateWithStandby(t)
	reader := db.Role("reader")
	db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, now() - '1 day'::interval FROM " +
		"generate_series(1, 50) i; GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + reader)
	if err := standby.FallBehind(t.Context(), primary); err != nil { // it stops at the state that primary has now
		t.Fatal(err)
	}
	totals := regexp.MustCompile(`(?m)^"public".*|^Total: .* would be deleted|^GRANT .*`)
	var texts [2][]string
	for i, url := range []string{db.As(reader), standby.URL(reader, db.Name)} {
		code, out, errs := cleanupd(t, "preview", "--database-url", url)
		if code != 0 {
			t.Fatalf("%s: %d %s%s", url, code, out, errs)
		}
		texts[i] = totals.FindAllString(out, -1)
	}
	if !slices.Contains(texts[0], "Total: 50 rows would be deleted") || !slices.Equal(texts[0], texts[1]) {
		t.Errorf("the primary shows\n%q\nand the standby\n%q", texts[0], texts[1])
	}
}
