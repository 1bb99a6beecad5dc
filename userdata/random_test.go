package userdata_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
)

var (
	seeds = flag.Uint64("seeds", suite.Size[uint64](suite.Model, 2, 8),
		"how many random databases TestRandomDatabases makes, on each engine and for each document storage")
	firstSeed = flag.Uint64("first-seed", 0, "the first of them")
)

var allVariables = []userdata.Variable{
	{Application: "Loans", Workflow: "apply"},
	{Application: "Loans", Workflow: "folder/sub/review"},
	{Application: "Claims", Workflow: "apply"},
}

// Tables named as in Variable.
var workflows = map[string]string{
	"Loans/apply":             "tb_101",
	"Loans/folder/sub/review": "tb_102",
	"Claims/apply":            "tb_103",
}

// Rows of the database and files of the folder, as texts.
func (f *fixture) contents() map[string][]string {
	out := map[string][]string{"files": f.files()}
	for _, t := range f.data.Tables {
		out[t.Name] = f.rows(t)
	}
	return out
}

func (f *fixture) rows(t *formsdb.Table) []string {
	var texts []string
	for _, c := range t.Columns {
		quoted := `"` + strings.ReplaceAll(c, `"`, `""`) + `"`
		switch { // numbers without decimals, bytes as they are
		case f.on == onPostgres && (c == "photo" || c == "content"):
			quoted = "encode(" + quoted + ", 'escape')"
		case f.on == onMySQL && (c == "amount" || c == "process_instance_id"):
			quoted = "CAST(" + quoted + " AS signed)"
		}
		texts = append(texts,
			"COALESCE(CAST("+quoted+" AS "+map[engine]string{onPostgres: "text", onMySQL: "char"}[f.on]+"), 'NULL')")
	}
	return f.db.Strings("SELECT concat_ws('|', " + strings.Join(texts, ", ") + ") FROM " + t.Name)
}

func rowsOf(t *formsdb.Table) (list []string) {
	for _, row := range t.Rows {
		var texts []string
		for _, value := range row {
			switch v := value.(type) {
			case nil:
				texts = append(texts, "NULL")
			case []byte:
				texts = append(texts, string(v))
			default:
				texts = append(texts, fmt.Sprint(v))
			}
		}
		list = append(list, strings.Join(texts, "|"))
	}
	return list
}

func (f *fixture) compare(m *model) {
	f.t.Helper()
	for _, t := range m.Tables {
		got, want := f.rows(t), rowsOf(t)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			f.t.Errorf("%s: %.500q; want %.500q", t.Name, got, want)
		}
	}
	if got, want := f.files(), slices.Sorted(slices.Values(m.Files)); !slices.Equal(got, want) {
		f.t.Errorf("files: %v, want %v", got, want)
	}
}

func reasonsOf(found *userdata.Found) map[int64][]string {
	out := map[int64][]string{}
	for _, in := range found.Instances {
		for _, r := range in.Reasons {
			text := string(r.Kind)
			if r.Kind == userdata.InVariable {
				text = fmt.Sprintf("%s.%s %s", workflows[r.Variable.Application+"/"+r.Variable.Workflow],
					r.Variable.Name, r.Match)
			}
			out[in.ID] = append(out[in.ID], text)
		}
		slices.Sort(out[in.ID])
	}
	return out
}

// Some assignments get another process instance than their task has.
func (f *fixture) mixAssignments(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	for _, row := range f.data.Table("tb_assignment").Rows {
		if rng.IntN(3) == 0 {
			row[3] = int64(rng.IntN(60) + 1)
			f.db.Do(fmt.Sprintf("UPDATE tb_assignment SET process_instance_id = %d WHERE id = %d", row[3], row[0]))
		}
	}
}

// On random databases, exactly a person's data is found and erased, compared row by row and file by file.
func TestRandomDatabases(t *testing.T) {
	onBoth(t, testRandomDatabases)
}

func testRandomDatabases(t *testing.T, on engine) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		for _, inFiles := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, in files %t", seed, inFiles), func(t *testing.T) {
				t.Parallel()
				f := newFormsOn(t, on, seed, 60, inFiles)
				f.mixAssignments(seed)
				f.work()
				m := newModel(f.data, inFiles)
				user := formsdb.Users[rand.New(rand.NewPCG(seed, 1)).IntN(len(formsdb.Users))]
				query := userdata.Query{UserID: user, Variables: allVariables}
				principals := f.find(query).Principals
				query.PrincipalIDs = principals[:1]
				found := f.find(query)
				reasons, orphans := m.find(user, query.PrincipalIDs)
				for _, list := range reasons {
					slices.Sort(list)
				}
				if got := reasonsOf(found); !maps.EqualFunc(got, reasons, slices.Equal) ||
					!slices.Equal(found.OrphanTasks, orphans) {
					t.Fatalf("%s: found %v and %v, want %v and %v", user, got, found.OrphanTasks, reasons, orphans)
				}
				var sure []int64
				for id, list := range reasons {
					if slices.ContainsFunc(list, func(r string) bool { return !strings.HasSuffix(r, " PART") }) {
						sure = append(sure, id)
					}
				}
				slices.Sort(sure)
				before := f.contents()
				preview := f.preview(userdata.Request{Query: &query})
				if after := f.contents(); !maps.EqualFunc(before, after, slices.Equal) {
					t.Error("a dry run changed something")
				}
				events, receipt := f.erase(userdata.Request{Query: &query, RequestedBy: "test"})
				m.erase(sure, orphans)
				f.compare(m)
				if !receipt.Succeeded || !slices.Equal(receipt.Instances, sure) ||
					!slices.Equal(receipt.Tasks, orphans) ||
					!maps.Equal(receipt.Rows, m.rows) {
					t.Errorf("the receipt is %+v, want rows %v", receipt, m.rows)
				}
				if !maps.Equal(preview.Rows, receipt.Rows) ||
					!slices.Equal(
						slices.Sorted(slices.Values(preview.Files)), slices.Sorted(slices.Values(receipt.Files)),
					) {
					t.Errorf("preview: %v, %v; erasure: %v, %v", preview.Rows, preview.Files, receipt.Rows,
						receipt.Files)
				}
				reported := map[string]int{}
				for _, e := range events {
					switch {
					case e.Instance != nil:
						reported["instances"]++
					case e.Task != nil:
						reported["tasks"]++
					}
				}
				if reported["instances"] != len(sure) || reported["tasks"] != len(orphans) {
					t.Errorf("reported %v, want %d and %d", reported, len(sure), len(orphans))
				}
				if left := f.find(query); len(left.OrphanTasks) > 0 ||
					slices.ContainsFunc(left.Instances, func(in userdata.Instance) bool {
						return slices.ContainsFunc(in.Reasons,
							func(r userdata.Reason) bool { return r.Match != userdata.Part })
					}) {
					t.Errorf("found after the erasure: %+v", left)
				}
				if stored := f.record.Strings(
					"SELECT concat(e.*, (SELECT string_agg(v.body::text, '') FROM cleanupd.erasure_event v)) FROM " +
						"cleanupd.erasure e",
				); strings.Contains(stored[0], user) &&
					len(user) > 4 {
					t.Errorf("the record holds the user id: %s", stored[0])
				}
			})
		}
	}
}
