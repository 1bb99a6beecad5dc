package userdata_test

import (
	"errors"
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
