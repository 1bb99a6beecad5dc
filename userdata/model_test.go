package userdata_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
)

// Predicts in plain Go, independently of the code under test, the results of searches and erasures.
type model struct {
	*formsdb.Data
	inFiles bool
	rows    map[string]int64 // deleted rows, by table
}

func newModel(d *formsdb.Data, inFiles bool) *model { return &model{d, inFiles, map[string]int64{}} }

func (m *model) drop(table string, which func(row []any) bool) (gone [][]any) {
	t := m.Table(table)
	t.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(row []any) bool {
		if which(row) {
			gone = append(gone, row)
			return true
		}
		return false
	})
	if len(gone) > 0 {
		m.rows[table] += int64(len(gone))
	}
	return gone
}

// "" if the text does not contain the user id.
func holds(text, user string) userdata.Match {
	best := userdata.Match("")
	for i := range len(text) - len(user) + 1 {
		if text[i:i+len(user)] != user {
			continue
		}
		before, after := []rune(text[:i]), []rune(text[i+len(user):])
		word := func(r rune) bool {
			return unicode.In(r, unicode.Letter, unicode.Digit) || r == '_' || r == '.' || r == '-' || r == '@'
		}
		switch {
		case len(text) == len(user):
			return userdata.Whole
		case (len(before) == 0 || !word(before[len(before)-1])) && (len(after) == 0 || !word(after[0])):
			best = userdata.Word
		case best == "":
			best = userdata.Part
		}
	}
	return best
}

// All variables of all workflows are searched.
func (m *model) find(user string, principals []string) (reasons map[int64][]string, orphans []int64) {
	reasons = map[int64][]string{}
	add := func(instance int64, reason string) {
		if !slices.Contains(reasons[instance], reason) {
			reasons[instance] = append(reasons[instance], reason)
		}
	}
	for _, task := range m.Table("tb_task").Rows {
		if task[1] == int16(1) && slices.Contains(principals, task[2].(string)) {
			if task[3] == int64(0) {
				orphans = append(orphans, task[0].(int64))
			} else {
				add(task[3].(int64), "INITIATOR")
			}
		}
	}
	queues := map[int64]bool{}
	for _, q := range m.Table("tb_queue").Rows {
		queues[q[0].(int64)] = slices.Contains(principals, q[1].(string))
	}
	for _, a := range m.Table("tb_assignment").Rows {
		switch {
		case !queues[a[2].(int64)]:
		case a[3] == int64(0):
			orphans = append(orphans, a[1].(int64))
		default:
			add(a[3].(int64), "PARTICIPANT")
		}
	}
	slices.Sort(orphans)
	for table, searched := range map[string][]int{"tb_101": {1, 2, 3}, "tb_102": {1, 2}, "tb_103": {1}} {
		for _, row := range m.Table(table).Rows {
			for _, column := range searched {
				how := userdata.Match("")
				switch value := row[column].(type) {
				case string:
					how = holds(value, user)
				case int64:
					if fmt.Sprint(value) == user {
						how = userdata.Whole
					}
				}
				if how != "" {
					add(row[0].(int64), fmt.Sprintf("%s.%s %s", table, m.Table(table).Columns[column], how))
				}
			}
		}
	}
	return reasons, slices.Compact(orphans)
}

func (m *model) sessions(tasks []int64) map[string]bool {
	sessions := map[string]bool{}
	for _, task := range tasks {
		sessions[fmt.Sprintf("_wfattach%d", task)] = true
	}
	for _, fd := range m.Table("tb_form_data").Rows {
		if slices.Contains(tasks, fd[1].(int64)) {
			sessions[fmt.Sprintf("_wftask%d", fd[0])] = true
			sessions[fmt.Sprintf("_wftaskformid%d", fd[0])] = true
		}
	}
	return sessions
}

// The documents that are in the database go, too.
func (m *model) tasks(ids []int64) {
	sessions := m.sessions(ids)
	if !m.inFiles {
		kept, referred := map[string]bool{}, map[string]bool{}
		for _, r := range m.Table("tb_dm_session_reference").Rows {
			if sessions[r[1].(string)] {
				referred[r[0].(string)] = true
			} else {
				kept[r[0].(string)] = true
			}
		}
		m.drop("tb_dm_chunk", func(row []any) bool { return referred[row[0].(string)] && !kept[row[0].(string)] })
		m.drop("tb_dm_session_reference", func(row []any) bool { return sessions[row[1].(string)] })
		m.drop("tb_dm_deletion", func(row []any) bool { return sessions[row[0].(string)] })
	}
	for table, column := range map[string]int{
		"tb_task_acl":        0,
		"tb_task_attachment": 0,
		"tb_form_data":       1,
		"tb_assignment":      1,
		"tb_task":            0,
	} {
		m.drop(table, func(row []any) bool { return slices.Contains(ids, row[column].(int64)) })
	}
}

// The files of both go, too.
func (m *model) erase(instances, orphans []int64) {
	var tasks []int64
	for _, task := range m.Table("tb_task").Rows {
		id, instance := task[0].(int64), task[3].(int64)
		if slices.Contains(instances, instance) || (instance == 0 && slices.Contains(orphans, id)) {
			tasks = append(tasks, id)
		}
	}
	sessions := m.sessions(tasks)
	m.tasks(tasks)
	of := func(column int) func([]any) bool {
		return func(row []any) bool { return slices.Contains(instances, row[column].(int64)) }
	}
	for _, table := range []string{"tb_101", "tb_102", "tb_103", "tb_process_instance"} {
		m.drop(table, of(0))
	}
	m.drop("tb_assignment", of(3))
	kept, gone := map[string]bool{}, map[string]bool{}
	for _, name := range m.Files {
		guid, session, marks := strings.Cut(path.Base(name), ".session")
		switch {
		case !marks:
		case sessions[session]:
			gone[path.Join(path.Dir(name), guid)] = true
		default:
			kept[guid] = true
		}
	}
	m.Files = slices.DeleteFunc(slices.Clone(m.Files), func(name string) bool {
		_, session, marks := strings.Cut(path.Base(name), ".session")
		return (marks && sessions[session]) || (gone[name] && !kept[path.Base(name)])
	})
}

var (
	seeds = flag.Uint64("seeds", suite.Size[uint64](suite.Model, 2, 5),
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
		for _, inFiles := range suite.Size(suite.Model, []bool{seed%2 == 1}, []bool{false, true}) {
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
