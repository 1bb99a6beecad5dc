package tasks_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

var poisonSeeds = flag.Int("poison-seeds", suite.Size(suite.Model, 1, 4), "how many random databases TestPoison makes")

// addFailingRows makes about n random rows fail when they are deleted or updated. Equal rows without a key fail
// together. It leaves out options, and rows that a foreign key deletes.
func addFailingRows(db *pgtest.DB, m *model, rng *rand.Rand, n int) {
	db.Do(
		"CREATE FUNCTION elsewhere.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.poison THEN RAISE " +
			"'not this one'; END IF; RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END; END $$",
	)
	all := 0
	for _, t := range m.db.Tables {
		all += len(t.Rows)
	}
	m.failing = map[*any]bool{}
	for _, t := range m.db.Tables {
		if t.Name == "xtkoption" || t.Name == "cusdeliverynote" {
			continue
		}
		var chosen, rows []string
		for _, row := range t.Rows {
			text := identity(t, row)
			if rng.IntN(all) < n {
				chosen = append(chosen, text)
			}
			rows = append(rows, text)
		}
		for i, row := range t.Rows {
			if slices.Contains(chosen, rows[i]) {
				m.failing[&row[0]] = true
			}
		}
		columns := t.Key
		if columns == "" {
			columns = strings.Join(
				slices.DeleteFunc(slices.Clone(t.Columns), func(c string) bool { return strings.HasPrefix(c, "ts") }),
				", ")
		}
		db.Do(fmt.Sprintf("ALTER TABLE %s ADD poison boolean", t.Name))
		db.Do(fmt.Sprintf("UPDATE %s SET poison = true WHERE concat_ws('|', %s) = ANY ($1::text[])", t.Name, columns),
			chosen)
		db.Do(fmt.Sprintf(
			"CREATE TRIGGER refuse BEFORE DELETE OR UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION elsewhere.refuse()",
			t.Name,
		))
	}
}

// identity returns the key of a row, or its values without NULLs and dates, which the server formats differently.
func identity(t *campaigndb.Table, row campaigndb.Row) string {
	if t.Key != "" {
		return fmt.Sprint(row[t.Column(t.Key)])
	}
	var parts []string
	for _, value := range row {
		if _, date := value.(time.Time); value != nil && !date {
			parts = append(parts, fmt.Sprint(value))
		}
	}
	return strings.Join(parts, "|")
}

// A run retains about a thousand failing rows of all tables and the rows that depend on them. It deletes all other
// obsolete rows, even if its worker dies. It counts the failed rows exactly, and so does the next run.
func TestPoison(t *testing.T) {
	t.Parallel()
	for i := range *poisonSeeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			m := randomDatabase(t, db, seed, now)
			rng := rand.New(rand.NewPCG(seed, 6))
			addFailingRows(db, m, rng, 1_000)
			limit, workers := []int{0, 1, 7, 100}[rng.IntN(4)], 1+rng.IntN(3)
			original := m.keys()
			m.run()
			if m.failures < 100 {
				t.Logf("only %d rows fail", m.failures)
			}
			j := newJournal(db)
			change := func(c *cleanup.Config) {
				c.Settings.MaxRows, c.Settings.Workers, c.ContinueOnError = limit, workers, true
			}
			if rng.IntN(2) == 0 {
				j.loseAt, j.after = 1+rng.IntN(200), rng.IntN(2) == 0
			}
			err := runWith(t, j, change)
			if errors.Is(err, cleanup.ErrLost) {
				j.loseAt = 0
				err = runWith(t, j, func(c *cleanup.Config) { change(c); resume(c, j) })
			}
			var refused int64
			for task, state := range j.states {
				refused += j.retained[task].Failed
				skipped := state == cleanup.NotRun && m.rollUpFails
				if state == cleanup.Failed && !strings.Contains(j.problems[task], "rows failed") {
					t.Errorf("task %s failed with %q; the run ended with %v", task, j.problems[task], err)
				}
				if state != cleanup.Succeeded && state != cleanup.Skipped && state != cleanup.Failed && !skipped {
					t.Errorf("task %s is %s; the run ended with %v", task, state, err)
				}
			}
			compare(t, "poisoned", contents(t, db, m, original), m.contents(original))
			compare(t, "poisoned", recordedRemotes(db), m.recorded)
			got := [3]int64{2: refused}
			for _, d := range j.batches {
				got[0], got[1] = got[0]+d.Deleted, got[1]+d.Updated
			}
			if want := [3]int64{m.deleted, m.updated, m.failures}; got != want {
				t.Errorf("deleted, updated and failed: %d, want %d", got, want)
			}
			if t.Failed() {
				t.Log(strings.Join(
					slices.DeleteFunc(j.logs, func(l string) bool { return !strings.HasPrefix(l, "WARNING") }), "\n",
				))
			}
			t.Logf("%d rows deleted, %d updated, %d failed", m.deleted, m.updated, m.failures)
		})
	}
}
