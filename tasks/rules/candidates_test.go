package rules_test

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// set returns the candidate rows of a task on a relation. The task updates the given columns, or deletes rows if there
// are none.
func set(task, relation string, updates ...string) rules.Candidates {
	j := rules.Job{Table: &campaign.Table{Schema: "public", Name: relation}, DateColumns: []string{"ts"}}
	j.Relation, j.Unit = relation, "1 "+relation
	for _, column := range updates {
		j.Set = append(j.Set, purge.Assignment{Column: column})
	}
	j.Where = sqlexpr.SQL(task)
	return rules.CandidatesOf(task, j, j.Sweep)[0]
}

func TestHides(t *testing.T) {
	t.Parallel()
	later := set("later", "a").Job
	for name, c := range map[string]struct {
		s     rules.Candidates
		hides bool
	}{
		"deleted rows":                     {set("first", "a"), true},
		"rows whose date is updated":       {set("first", "a", "ts"), true},
		"rows with another updated column": {set("first", "a", "i"), false},
	} {
		if hides := c.s.Hides(later); hides != c.hides {
			t.Errorf("%s: got %v, want %v", name, hides, c.hides)
		}
	}
}

// Each row counts at the first job that deletes it.
func TestOfRelation(t *testing.T) {
	t.Parallel()
	all := []rules.Candidates{set("x", "a"), set("x", "b"), set("y", "a", "i"), set("z", "a")}
	sets, rows := rules.CandidatesOfRelation(all, "a")
	var tasks []string
	for _, s := range sets {
		tasks = append(tasks, s.Task)
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
	all := []rules.Candidates{set("x", "a"), set("y", "b"), set("z", "a"), set("w", "a")}
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
		j := set("x", relation).Job
		j.Step.Paired, j.Paired = paired, &purge.Paired{Relation: `"public"."p"`}
		jobs = append(jobs, j)
	}
	jobs = append(jobs, set("x", "p").Job, set("x", "c").Job)
	related := rules.RelatedRelations(jobs, "a")
	if !related["a"] || !related["b"] || !related["p"] || related["c"] {
		t.Errorf("got %v, want a, b and p", related)
	}
	if alone := rules.RelatedRelations(jobs, "c"); len(alone) != 1 {
		t.Errorf("got %v, want c alone", alone)
	}
}
