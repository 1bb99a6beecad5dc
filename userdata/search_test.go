package userdata_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cleanupd/cleanupd/userdata"
)

// A search never fails, and finds a variable if and only if it contains the user id, for random user ids and values.
func FuzzFind(f *testing.F) {
	for _, c := range [][2]string{
		{"ann", "joanna"},
		{"ann", "<name>ann</name>"},
		{"%", "100 %"},
		{"_", "x"},
		{`\`, `\\`},
		{"'", "o'neil"},
		{"4711", "4711.0"},
		{"1e3", "1000"},
		{"-0", "0"},
		{"0x10", "16"},
		{"NaN", "NaN"},
		{"4711", "04711"},
		{strings.Repeat("9", 140_000), "9"},
		{"0." + strings.Repeat("1", 17_000), "9"},
		{"Ä", "ä"},
		{"e\u0301", "é"},
		{"$1", "$1"},
		{" ", "  "},
	} {
		f.Add(c[0], c[1])
	}
	forms := newForms(f, 1, 0, false)
	forms.db.Do("INSERT INTO tb_101 (process_instance_id, applicant, amount) VALUES (1, '', 0)")
	in := userdata.Variable{Application: "Loans", Workflow: "apply"}
	f.Fuzz(func(t *testing.T, user, value string) {
		if user == "" || !isText(user) || !isText(value) {
			return // refused earlier, or impossible in a database
		}
		if _, err := forms.record.Exec(t.Context(), "UPDATE tb_101 SET applicant = $1", value); err != nil {
			t.Skip(err) // too long for the column
		}
		var amount bool
		if err := forms.record.QueryRow(t.Context(), "UPDATE tb_101 SET amount = CASE WHEN $1 ~ '^[0-9]{1,9}$' THEN "+
			"$1::text::numeric ELSE 0 END RETURNING $2::text ~ '^-?[0-9]{1,30}([.][0-9]{1,30})?$' AND amount::text = "+
			"$2", value, user).
			Scan(&amount); err != nil {
			t.Fatal(err)
		}
		found, err := forms.Find(t.Context(), userdata.Query{UserID: user, Variables: []userdata.Variable{in}})
		if err != nil {
			t.Fatalf("%.100q: %v", user, err)
		}
		var reasons []userdata.Reason
		for _, instance := range found.Instances {
			reasons = append(reasons, instance.Reasons...)
		}
		held := slices.ContainsFunc(reasons, func(r userdata.Reason) bool {
			return r.Variable.Name == "applicant" && (r.Match == userdata.Whole) == (value == user)
		})
		if held != strings.Contains(value, user) {
			t.Errorf("%q in %q: %v", user, value, reasons)
		}
		if amount &&
			!slices.Contains(reasons, userdata.Reason{
				Kind:     userdata.InVariable,
				Variable: userdata.Variable{Application: "Loans", Workflow: "apply", Name: "amount"},
				Match:    userdata.Whole,
			}) {
			t.Errorf("the number %q is not found: %v", user, reasons)
		}
	})
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// Names of workflows and variables are only looked up, never executed.
func FuzzVariable(f *testing.F) {
	for _, v := range [][3]string{
		{"Loans", "apply", "applicant"},
		{"Loans", "apply", ""},
		{"Claims", "apply", `Note "1"`},
		{"Loans", "hostile", ""},
		{"Loans", "none", ""},
		{"Loans", "gone", "x"},
		{"Loans/apply", "", ""},
		{"'", `"; DROP TABLE tb_task; --`, "%"},
		{"Loans", "apply", "process_instance_id"},
		{"Loans", "apply", "ctid"},
	} {
		f.Add(v[0], v[1], v[2])
	}
	forms := newForms(f, 1, 20, false)
	f.Fuzz(func(t *testing.T, application, workflow, variable string) {
		if !isText(application) || !isText(workflow) || !isText(variable) {
			return
		}
		v := userdata.Variable{Application: application, Workflow: workflow, Name: variable}
		found, err := forms.Find(t.Context(), userdata.Query{UserID: "ann", Variables: []userdata.Variable{v}})
		if err != nil {
			if !errors.Is(err, userdata.ErrNoVariable) {
				t.Errorf("%v: %v", v, err)
			}
			return
		}
		if name := application + "/" + workflow; !slices.ContainsFunc(
			forms.data.Table("omd_object_type").Rows, func(row []any) bool { return row[0] == "pt_"+name },
		) {
			t.Errorf("workflow %q is known: %v", name, found)
		}
		for _, instance := range found.Instances {
			for _, r := range instance.Reasons {
				if r.Kind == userdata.InVariable &&
					(r.Variable.Application != application || r.Variable.Workflow != workflow ||
						(variable != "" && r.Variable.Name != variable)) {
					t.Errorf("%v was looked into for %v", r.Variable, v)
				}
			}
		}
	})
}

// A number is found in a column of any type that can store it.
func TestNumbers(t *testing.T) { onBoth(t, testNumbers) }

func testNumbers(t *testing.T, on engine) {
	f := newFormsOn(t, on, 0, 0, false)
	for i, c := range []struct{ kind, stored, user string }{
		{"smallint", "32767", "32767"},
		{"integer", "2147483647", "2147483647"},
		{"bigint", "9223372036854775807", "9223372036854775807"},
		{"numeric", "12345678901234567890.5", "12345678901234567890.50"},
		{"numeric(12,2)", "4711", "4711"},
		{"numeric", "NaN", "1"},
		{"real", "16777215", "16777215"},
		{"real", "1234567", "1234567"},
		{"real", "0.1", "0.1"},
		{"real", "4711", "4711.0"},
		{"real", "-4711", "-4711"},
		{"real", "Infinity", "1"},
		{"real", "NaN", "1"},
		{"double precision", "9007199254740991", "9007199254740991"},
		{"double precision", "1e20", "100000000000000000000"},
		{"double precision", "0.1", "0.1"},
		{"double precision", "-Infinity", "1"},
		{"text", "9007199254740991", "9007199254740991"},
	} {
		column, kind := fmt.Sprintf("c%d", i), c.kind
		if on == onMySQL {
			switch {
			case c.stored == "NaN" || strings.HasSuffix(c.stored, "Infinity"):
				continue // the column cannot store it
			case kind == "numeric":
				kind = "decimal(40, 10)"
			case kind == "real":
				kind = "float"
			}
		}
		f.db.Do(
			fmt.Sprintf(
				"ALTER TABLE tb_102 ADD %[1]s %[2]s; INSERT INTO tb_102 (process_instance_id, %[1]s) VALUES (1, "+
					"'%[3]s'), (2, '1000')",
				column,
				kind,
				c.stored,
			),
		)
		found := f.find(userdata.Query{
			UserID:    c.user,
			Variables: []userdata.Variable{{Application: "Loans", Workflow: "folder/sub/review", Name: column}},
		})
		if len(found.Instances) == 1 != (c.user != "1") ||
			(len(found.Instances) > 0 &&
				(found.Instances[0].ID != 1 || found.Instances[0].Reasons[0].Match != userdata.Whole)) {
			t.Errorf("%s in %s %s: %+v", c.user, c.kind, c.stored, found.Instances)
		}
	}
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
			matches, err := f.task(rule).Matches(t.Context(), now)
			if shared := strings.HasPrefix(name, "that two rows"); err != nil ||
				slices.Equal(ids(matches), []int64{7}) == shared {
				t.Errorf("the matches of a purge are %+v %v", matches, err)
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

func spelledTable(on engine, name string) string {
	if on == onMySQL {
		return "`" + name + "`"
	}
	return `"` + name + `"`
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
	rule := userdata.Purge{
		Name: "p", Application: "Loans", Workflow: "apply", DateColumn: "ended", Days: 30, Enabled: true,
	}
	matches, err := f.task(rule).Matches(t.Context(), now)
	if err != nil || len(matches.Items) != 0 || len(matches.Notes) != 2 ||
		!strings.Contains(matches.Notes[0].Text, "several tables are named") {
		t.Errorf("the matches of a purge are %+v %v", matches, err)
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
