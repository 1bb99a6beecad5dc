package userdata_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/cleanupd/cleanupd/internal/formsdb"
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
