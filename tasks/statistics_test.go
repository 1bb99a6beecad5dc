package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

func TestStatistics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		option string
		says   []string
		never  string
	}{
		{"", []string{"INFO:  vacuuming", "nmsvisitor"}, ""},
		{"0", []string{"INFO:  vacuuming", "nmsvisitor"}, ""},
		{"1", []string{"Option 'XtkCleanup_NoStats' is set to '1'"}, "INFO:  "},
		{"2", []string{"INFO:  analyzing", "nmsvisitor"}, "vacuuming"},
		{"9", []string{"WARNING", "stored as 9"}, "INFO:  "},
	} {
		t.Run("option "+c.option, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Superuser("CREATE TABLE owned_by_postgres ()")
			if c.option != "" {
				db.Do("INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', " + c.option + ")")
			}
			if j := mustRun(t, db, dry, "statistics"); j.said("INFO:  ") {
				t.Error("a dry run did it")
			}
			j := mustRun(t, db, nil, "statistics")
			if !j.said(c.says...) {
				t.Errorf("not said: %q", c.says)
			}
			if c.never != "" && j.said(c.never) {
				t.Errorf("said: %q", c.never)
			}
			if j.said("owned_by_postgres") {
				t.Error("touched a table that is not the role's")
			}
		})
	}
}

// Partitioned parents are analyzed after their partitions, and materialized views are like tables. A parent of foreign tables,
// which ANALYZE would read from their server, is left alone.
func TestStatisticsOfParentsAndViews(t *testing.T) {
	t.Parallel()
	for mode := range 3 {
		t.Run(fmt.Sprintf("option %d", mode), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(`CREATE TABLE a_log (id integer, day integer) PARTITION BY RANGE (id);
				CREATE TABLE b_log PARTITION OF a_log FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (day);
				CREATE TABLE c_log PARTITION OF b_log FOR VALUES FROM (0) TO (10); CREATE TABLE d_log PARTITION OF b_log FOR VALUES FROM (10) TO (20);
				CREATE TABLE e_log (id integer) PARTITION BY RANGE (id);
				INSERT INTO a_log SELECT i, i % 20 FROM generate_series(0, 99) i; CREATE MATERIALIZED VIEW seen AS SELECT * FROM a_log;
				INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', ` + fmt.Sprint(mode) + `)`)
			db.Superuser(`CREATE FOREIGN DATA WRAPPER elsewhere; CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere; GRANT USAGE ON FOREIGN SERVER elsewhere TO neolane`)
			db.Do("CREATE FOREIGN TABLE f_log PARTITION OF e_log FOR VALUES FROM (0) TO (100) SERVER elsewhere")
			j := mustRun(t, db, nil, "statistics")
			want := map[int][]string{0: {"analyzed 100 a_log", "analyzed 100 b_log", "vacuumed 100 seen", "vacuumed 50 c_log", "vacuumed 50 d_log"}, 1: nil,
				2: {"analyzed 100 a_log", "analyzed 100 b_log", "analyzed 100 seen", "analyzed 50 c_log", "analyzed 50 d_log"}}[mode]
			if got := db.Strings(`SELECT concat_ws(' ', CASE WHEN pg_stat_get_vacuum_count(oid) > 0 THEN 'vacuumed' ELSE 'analyzed' END, reltuples, relname) FROM pg_class
				WHERE relname ~ '^(._log|seen)$' AND reltuples >= 0 AND EXISTS (SELECT FROM pg_stats WHERE tablename = relname AND inherited = (relkind = 'p')) ORDER BY 1`); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q; %q", got, want, j.logs)
			}
			last := -1
			for _, first := range []string{`c_log"`, `b_log" inheritance tree`, `a_log" inheritance tree`} {
				at := slices.IndexFunc(j.logs, func(line string) bool { return strings.Contains(line, "analyzing") && strings.Contains(line, first) })
				if mode != 1 && at <= last {
					t.Errorf("%s is analyzed too soon: %q", first, j.logs)
				}
				last = at
			}
		})
	}
}
