package tasks_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/rowkey"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func anyKey() error { return nil }

func keysOf(t *testing.T, db *pgtest.DB, table string) (keys []string) {
	t.Helper()
	for _, columns := range db.Strings(`SELECT (SELECT string_agg(quote_literal(attname || '=') || ' || ' ||
		quote_ident(attname), ' || '','' || ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = i.indrelid
		AND attnum = ANY (i.indkey))
		FROM pg_index i WHERE indrelid = to_regclass($1) AND indisunique AND indpred IS NULL AND indexprs IS NULL
		AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = i.indrelid AND attnum = ANY (i.indkey)
			AND atttypid NOT IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype))`, table) {
		keys = append(keys,
			db.Strings("SELECT key FROM (SELECT "+columns+" AS key FROM "+table+") AS k WHERE key IS NOT NULL")...)
	}
	return keys
}

// The next run deletes exactly the rows that Explain calls obsolete, for all rows with a key of random databases.
func TestExplainEveryRow(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Model)
	for i := range max(*seeds/4, 1) { // explaining each row takes far longer than a run
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			m := randomDatabase(t, db, seed, now)
			// The table has no key, and rolling it up changes its rows.
			db.Do("ALTER TABLE IF EXISTS NmsEmailErrorStat ADD iTestId integer GENERATED ALWAYS AS IDENTITY UNIQUE")
			rng := rand.New(rand.NewPCG(seed, 5))
			var holds rules.Holds
			if rng.IntN(3) == 0 {
				holds = m.randomHolds(rng)
			}
			type row struct{ table, key string }
			explanations := map[row]insight.RowExplanation{}
			tables := db.Strings(
				"SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND " +
					"relnamespace = 'public'::regnamespace",
			)
			for _, table := range tables {
				e, err := insight.NewExplainer(t.Context(),
					cleanup.Config{Pool: db.Pool, Now: now, Pipeline: tasks.Pipeline}, holds, strings.Trim(table, `"`))
				if denied := (*failure.Refusal)(nil); errors.As(err, &denied) &&
					denied.Reason == failure.ReasonNotCovered {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, key := range keysOf(t, db, table) {
					x, err := e.Row(t.Context(), columnsOf(key), anyKey)
					// A table that inherits from this one has the same key.
					if errors.Is(err, insight.ErrKey) && strings.Contains(err.Error(), "several rows") {
						continue
					}
					if err != nil {
						t.Fatalf("%s %s: %v", table, key, err)
					}
					explanations[row{table, key}] = x
				}
			}
			j := newJournal(db)
			j.holds = func() rules.Holds { return holds }
			if err := runWith(t, j, nil); err != nil {
				t.Fatal(err)
			}
			left := map[row]bool{}
			for _, table := range tables {
				if db.Int("SELECT count(*) FROM pg_class WHERE oid = to_regclass($1)", table) == 0 {
					continue
				}
				for _, key := range keysOf(t, db, table) {
					left[row{table, key}] = true
				}
			}
			deleted := 0
			for r, x := range explanations {
				switch obsolete := x.Verdict == insight.Deleted; {
				case obsolete && left[r] && j.retained[x.Task].Rows() > 0:
					// A failing trigger or a foreign key retained the row, which an explanation cannot know.
				case obsolete == left[r] || !x.Exists || (x.Verdict == insight.DeletedLater && !x.Since.After(now)):
					t.Errorf("%s %s: %s by %s at %v (the task retained %+v): %+v", r.table, r.key, x.Verdict, x.Task,
						x.Since, j.retained[x.Task], x.Steps)
				case obsolete:
					deleted++
				}
			}
			explained := slices.Collect(maps.Keys(explanations))
			ofStats := slices.ContainsFunc(explained, func(r row) bool { return r.table == "nmsemailerrorstat" })
			if stats := m.db.Table("NmsEmailErrorStat"); stats != nil && len(stats.Rows) > 0 && !ofStats {
				t.Error("no row of NmsEmailErrorStat was explained")
			}
			if len(explanations) < 50 {
				t.Errorf("%d rows were explained, want at least 50", len(explanations))
			}
			if deleted == 0 && holds.Names == nil {
				t.Error("no explained row was deleted")
			}
		})
	}
}

func columnsOf(key string) (columns []insight.KeyColumn) {
	for _, c := range rowkey.Parse(key) {
		columns = append(columns, insight.KeyColumn{Column: c.GetColumn(), Value: c.GetValue()})
	}
	return columns
}
