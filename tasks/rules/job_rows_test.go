package rules_test

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// rowsOf returns the rows of a task on a relation. The task updates the given columns, or deletes rows if there
// are none.
func rowsOf(task, relation string, updates ...string) rules.JobRows {
	j := rules.Job{Table: &campaign.Table{Schema: "public", Name: relation}, DateColumns: []string{"ts"}}
	j.Relation, j.Unit = relation, "1 "+relation
	for _, column := range updates {
		j.Set = append(j.Set, purge.Assignment{Column: column})
	}
	j.Where = sqlexpr.SQL(task)
	return rules.RowsOf(task, j, j.Sweep)[0]
}

func TestHides(t *testing.T) {
	t.Parallel()
	later := rowsOf("later", "a").Job
	for name, c := range map[string]struct {
		r     rules.JobRows
		hides bool
	}{
		"deleted rows":                     {rowsOf("first", "a"), true},
		"rows whose date is updated":       {rowsOf("first", "a", "ts"), true},
		"rows with another updated column": {rowsOf("first", "a", "i"), false},
	} {
		if hides := c.r.Hides(later); hides != c.hides {
			t.Errorf("%s: got %v, want %v", name, hides, c.hides)
		}
	}
}

// Each row counts at the first job that deletes it.
func TestOfRelation(t *testing.T) {
	t.Parallel()
	all := []rules.JobRows{rowsOf("x", "a"), rowsOf("x", "b"), rowsOf("y", "a", "i"), rowsOf("z", "a")}
	ofA, rows := rules.RowsOfRelation(all, "a")
	var tasks []string
	for _, r := range ofA {
		tasks = append(tasks, r.Task)
	}
	if !slices.Equal(tasks, []string{"x", "y", "z"}) {
		t.Fatalf("got %v", tasks)
	}
	for i, want := range [][]int{nil, {0}, {0}} {
		if !slices.Equal(rows[i].Except, want) {
			t.Errorf("%s: got %v, want %v", tasks[i], rows[i].Except, want)
		}
	}
}

func TestExclusions(t *testing.T) {
	t.Parallel()
	all := []rules.JobRows{rowsOf("x", "a"), rowsOf("y", "b"), rowsOf("z", "a"), rowsOf("w", "a")}
	excluded := rules.Exclusions(all, rules.OnRelation("a"), all[2])
	if sql, _ := sqlexpr.Or(excluded...).Build(); sql != "x" {
		t.Errorf("got %v, want those of x", excluded)
	}
}

func TestRelated(t *testing.T) {
	t.Parallel()
	paired := &rules.Paired{Table: "NmsPaired"}
	var jobs []rules.Job
	for _, relation := range []string{"a", "b"} {
		j := rowsOf("x", relation).Job
		j.Step.Paired, j.Paired = paired, &purge.Paired{Relation: `"public"."p"`}
		jobs = append(jobs, j)
	}
	jobs = append(jobs, rowsOf("x", "p").Job, rowsOf("x", "c").Job)
	related := rules.RelatedRelations(jobs, "a")
	if !related["a"] || !related["b"] || !related["p"] || related["c"] {
		t.Errorf("got %v, want a, b and p", related)
	}
	if alone := rules.RelatedRelations(jobs, "c"); len(alone) != 1 {
		t.Errorf("got %v, want c alone", alone)
	}
}
