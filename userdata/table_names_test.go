package userdata_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/userdata"
)

func spelledTable(on engine, name string) string {
	if on == onMySQL {
		return "`" + name + "`"
	}
	return `"` + name + `"`
}

// A workflow's table is found by its name in another case, as in databases that came from Oracle.
func TestTableNamesInAnotherCase(t *testing.T) { onBoth(t, testTableNamesInAnotherCase) }

func testTableNamesInAnotherCase(t *testing.T, on engine) {
	table, column := spelledTable(on, "TB_101"), spelledTable(on, "PROCESS_INSTANCE_ID")
	upperTable := "ALTER TABLE tb_101 RENAME TO " + table + "; "
	for name, setup := range map[string]string{
		"in the row": "UPDATE omd_object_type SET database_table = 'TB_101' WHERE database_table = " +
			"'tb_101'",
		"of the table": upperTable + "ALTER TABLE " + table + " RENAME COLUMN process_instance_id TO " +
			"" + column,
		"of both": upperTable + "UPDATE omd_object_type SET database_table = 'TB_101' WHERE " +
			"database_table = 'tb_101'",
		"that two rows spell in two ways": "INSERT INTO omd_object_type VALUES ('pt_Loans/again', 'TB_101')",
		"that another table has": "CREATE TABLE " + table + " (process_instance_id bigint, applicant varchar(255)); " +
			"INSERT INTO " + table + " VALUES (8, 'x')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newPurges(t, on)
			f.instance(7, 2, now.AddDate(-1, 0, 0), "tb_101")
			f.instance(8, 2, now.AddDate(-1, 0, 0), "tb_102")
			f.db.Do("UPDATE tb_101 SET applicant = 'zoe'")
			for _, statement := range strings.Split(setup, "; ") {
				f.db.Do(statement)
			}
			f.work()
			found := f.find(userdata.Query{
				UserID: "zoe", Variables: []userdata.Variable{{Application: "Loans", Workflow: "apply"}},
			})
			if len(found.Instances) != 1 || found.Instances[0].ID != 7 {
				t.Errorf("found %+v", found.Instances)
			}
			rule := userdata.Purge{
				Name:        "p",
				Application: "Loans",
				Workflow:    "apply",
				DateColumn:  "ended",
				Days:        30,
				Enabled:     true,
			}
			candidates, err := f.task(rule).Candidates(t.Context(), now)
			if shared := strings.HasPrefix(name, "that two rows"); err != nil ||
				slices.Equal(ids(candidates), []int64{7}) == shared {
				t.Errorf("the candidates of a purge are %+v %v", candidates, err)
			}
			preview := f.preview(userdata.Request{Instances: []int64{7}})
			_, receipt := f.erase(userdata.Request{Instances: []int64{7}})
			if !receipt.Succeeded || receipt.Rows["tb_101"]+receipt.Rows["TB_101"] != 1 ||
				fmt.Sprint(preview.Rows) != fmt.Sprint(receipt.Rows) {
				t.Errorf("preview %+v, erasure %+v", preview, receipt)
			}
		})
	}
}

// If a name stands for several tables, none of them is used. Process instances with rows in one of them are retained.
func TestAmbiguousTableNames(t *testing.T) { onBoth(t, testAmbiguousTableNames) }

func testAmbiguousTableNames(t *testing.T, on engine) {
	f := newPurges(t, on)
	f.instance(7, 2, now.AddDate(-1, 0, 0), "tb_101")
	f.instance(8, 2, now.AddDate(-1, 0, 0), "tb_102")
	f.db.Do("UPDATE tb_101 SET applicant = 'zoe'")
	f.db.Do("CREATE TABLE " + spelledTable(on, "TB_101") + " (process_instance_id bigint, applicant varchar(255))")
	f.db.Do("UPDATE omd_object_type SET database_table = 'Tb_101' WHERE database_table = 'tb_101'")
	f.work()
	found := f.find(userdata.Query{
		UserID: "zoe", Variables: []userdata.Variable{{Application: "Loans", Workflow: "apply"}},
	})
	if len(found.Instances) != 0 || len(found.NotSearched) != 1 ||
		!strings.Contains(found.NotSearched[0], "several tables") {
		t.Errorf("found %+v", found)
	}
	rule := userdata.Purge{Name: "p", Application: "Loans", Workflow: "apply", DateColumn: "ended", Days: 30, Enabled: true}
	candidates, err := f.task(rule).Candidates(t.Context(), now)
	if err != nil || len(candidates.Items) != 0 || len(candidates.Notes) != 2 ||
		!strings.Contains(candidates.Notes[0].Text, "several tables have the name") {
		t.Errorf("the candidates of a purge are %+v %v", candidates, err)
	}
	events, receipt := f.erase(userdata.Request{Instances: []int64{7, 8}})
	if receipt.Succeeded || receipt.Rows["tb_process_instance"] != 1 || f.db.Int("SELECT count(*) FROM tb_101") != 1 ||
		!f.logged(events, "process instance 7 could not be erased", "omd_object_type") {
		t.Errorf("%+v %+v", receipt, events)
	}
	if got := f.db.Strings("SELECT CONCAT('', id) FROM tb_process_instance"); !slices.Equal(got, []string{"7"}) {
		t.Errorf("the process instances %q are left, want 7", got)
	}
}
