package runs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// Policies whose rows keep the rows of others come first, also if they keep rows that would be deleted with those.
// Otherwise policies are ordered by name.
func TestOrderOfPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tables string
		want   string // each policy has the name of its table
	}{
		"no keys":  {"CREATE TABLE a (id int); CREATE TABLE b (id int)", "a b"},
		"a keeper": {"CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (a int REFERENCES a)", "b a"},
		"a cascade": {
			"CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (a int REFERENCES a ON DELETE CASCADE)", "a b",
		},
		"a chain": {
			`CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a);
			CREATE TABLE c (b int REFERENCES b)`, "c b a",
		},
		"a keeper of what goes too": {
			`CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE m (id int PRIMARY KEY, a int REFERENCES a ON DELETE CASCADE);
			CREATE TABLE n (id int PRIMARY KEY, m int REFERENCES m ON DELETE CASCADE);
			CREATE TABLE b (n int REFERENCES n ON DELETE RESTRICT)`, "b a",
		},
		"keepers that go with others": {
			`CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY);
			CREATE TABLE m (a int REFERENCES a, b int REFERENCES b ON DELETE CASCADE)`, "b a",
		},
		"what goes too keeps itself": {
			`CREATE TABLE a (id int PRIMARY KEY);
			CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a ON DELETE CASCADE, before int REFERENCES b)`, "b a",
		},
		"partitions": {
			`CREATE TABLE a (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE a_all PARTITION OF a DEFAULT;
			CREATE TABLE b (a int) PARTITION BY RANGE (a);
			CREATE TABLE b_all PARTITION OF b DEFAULT; ALTER TABLE b_all ADD FOREIGN KEY (a) REFERENCES a`, "b a",
		},
		"a circle": {
			`CREATE TABLE a (id int PRIMARY KEY, b int); CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a);
			ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b`, "a b",
		},
		"a circle with a keeper": {
			`CREATE TABLE a (id int PRIMARY KEY, b int); CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a);
			ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b; CREATE TABLE c (b int REFERENCES b)`, "c a b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(c.tables)
			var given []store.Policy
			for _, table := range slices.Sorted(strings.SplitSeq(c.want, " ")) {
				given = append(given, store.Policy{Policy: policy.Policy{Name: table, Table: table}})
			}
			for range 2 { // the order in which they are given does not matter
				list, err := runs.TaskSource{Profile: runs.ProfileNone}.With(t.Context(), db.Pool, given)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.ReplaceAll(strings.Join(list.Names(), " "), policy.Prefix, ""); got != c.want {
					t.Errorf("the order is %s, want %s", got, c.want)
				}
				slices.Reverse(given)
			}
		})
	}
}
