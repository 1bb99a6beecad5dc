package policies

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// All fields, and texts that YAML would read as something else, or that a terminal acts on.
func everything() *cleanupv1.Policy {
	return &cleanupv1.Policy{
		Name:        "everything",
		Table:       `shop."Order.Lines"`,
		Description: "a line\nand another: with \"quotes\"",
		Limit:       1_000,
		OlderThan:   &cleanupv1.OlderThan{Column: "placed", Age: &cleanupv1.OlderThan_Days{Days: 730}},
		Filters: []*cleanupv1.Filter{
			{Column: "status", Op: cleanupv1.FilterOp_FILTER_OP_IN, Values: []string{
				"1.50", "007", "true", "null", "", "2026-01-31", "~", "<<", "- a", "a: b", "a\tb", "\x1b[31m", "\u202e",
				"é", " ",
			}},
			{Column: "note", Op: cleanupv1.FilterOp_FILTER_OP_IS_NOT_NULL},
		},
		OrphanOf:   &cleanupv1.OrphanOf{Column: "customer", ParentTable: "shop.customer", ParentColumn: "id"},
		KeepNewest: &cleanupv1.KeepNewest{Per: []string{"customer", "no"}, OrderBy: "placed", Count: 3},
		Undo:       durationpb.New(72 * time.Hour),
		Assign:     []*cleanupv1.Assign{{Column: "email"}, {Column: "name", Value: proto.String("")}},
	}
}

// What encode writes, parse reads, with the fields in the order of the API and nothing that a terminal acts on.
func TestFilesAreReadAsWritten(t *testing.T) {
	other := &cleanupv1.Policy{Name: "other", Table: "login", Enabled: true, Etag: "x"}
	text, err := encode([]*cleanupv1.Policy{everything(), other})
	if err != nil {
		t.Fatal(err)
	}
	found, err := parse("f", strings.NewReader(text))
	if err != nil || len(found) != 2 {
		t.Fatalf("%v\n%s", err, text)
	}
	other.Etag = ""
	for i, want := range []*cleanupv1.Policy{everything(), other} {
		if !proto.Equal(found[i].policy, want) {
			t.Errorf("%v\n%v\n%s", found[i].policy, want, text)
		}
	}
	if !strings.HasPrefix(text, "policies:\n  - name: everything\n    table: shop.\"Order.Lines\"\n") ||
		strings.ContainsAny(text, "\x1b\u202e\t") || !strings.Contains(
		text, "      - column: email\n        value: null\n",
	) {
		t.Error(text)
	}
	if empty, err := encode(nil); err != nil || empty != "policies: []\n" {
		t.Errorf("%v %q", err, empty)
	}
}

// A file may be a policy, a list, a list under policies, or several such documents; JSON is YAML. Numbers, dates and
// truth values are texts as they are written, where the API has a text.
func TestForms(t *testing.T) {
	for text, want := range map[string]string{
		"name: a":                                   "a",
		"---\nname: a\n---\n---\nname: b\n...\n":    "a b",
		"- name: a\n- name: b":                      "a b",
		"policies:\n- name: a\n- name: b":           "a b",
		"policies:\n- name: a\n---\nname: b":        "a b",
		`{"policies": [{"name": "a"}]}`:             "a",
		"policies: []":                              "",
		"# nothing else\npolicies:\n- &x {name: a}": "a",
	} {
		found, err := parse("f", strings.NewReader(text))
		var names []string
		for _, e := range found {
			names = append(names, e.policy.GetName())
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
	found, err := parse("f", strings.NewReader(`
name: a
older_than: {column: at, days: 30}
filters:
- {column: c, op: equal, values: [1.50]}
- {column: c, op: FILTER_OP_NOT_IN, values: [007, 2026-01-31, true, no, "x"]}
assign: [{column: d, value: 1}, {column: e, value: null}, {column: f}]
undo: 3d
`))
	if err != nil {
		t.Fatal(err)
	}
	p := found[0].policy
	if p.GetOlderThan().GetDays() != 30 || p.GetUndo().AsDuration() != 72*time.Hour ||
		p.GetFilters()[0].GetOp() != cleanupv1.FilterOp_FILTER_OP_EQUAL ||
		p.GetFilters()[0].GetValues()[0] != "1.50" ||
		strings.Join(p.GetFilters()[1].GetValues(), " ") != "007 2026-01-31 true no x" ||
		p.GetAssign()[0].GetValue() != "1" || p.GetAssign()[1].Value != nil || p.GetAssign()[2].Value != nil {
		t.Error(p)
	}
}

// Everything that is wrong in a file is an error with the line, the policy and the field.
func TestMistakesInFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "f has no policy",
		"---\n":                        "f has no policy",
		"name: a\nolderthan: {}":       "f:2: policy a: olderthan is not a field (did you mean olderThan?)",
		"name: a\nolderThan: {day: 1}": "f:2: policy a: olderThan.day is not a field (did you mean days?)",
		"name: a\nfilters:\n- {column: c}\n- {colum: d}": "f:4: policy a: filters[1].colum is not a field " +
			"(did you mean column?)",
		"name: a\nfilters: {column: c}":         "f:2: policy a: filters must be a list",
		"name: a\nolderThan:":                   "f:2: policy a: olderThan has no value",
		"name: a\nolderThan: 30":                "f:2: policy a: olderThan must have fields",
		"name: a\nolderThan: {days: thirty}":    "f:2: policy a: olderThan.days must be a whole number",
		"name: a\nolderThan: {days: 1e99}":      "f:2: policy a: olderThan.days must be a whole number",
		"name: a\nenabled: 1":                   "f:2: policy a: enabled must be true or false",
		"name: a\nfilters: [{op: LIKE}]":        "f:2: policy a: filters[0].op must be one of EQUAL, NOT_EQUAL",
		"name: a\nfilters: [{op: UNSPECIFIED}]": "f:2: policy a: filters[0].op must be one of EQUAL",
		"name: a\nfilters: [{values: [[1]]}]":   "f:2: policy a: filters[0].values[0] must be a text",
		"name: a\nfilters:\n- values:\n  - x\n  - null": "f:5: policy a: filters[0].values[1] has no value: " +
			"for rows without a value in the column write op: IS_NULL",
		"name: a\nfilters: [{op: EQUAL, values: ~}]": "f:2: policy a: filters[0].values has no value: for rows without",
		"name: a\nfilters: [{values: [!!binary x]}]": "f:2: policy a: filters[0].values[0] must be a text",
		"name: a\ntable: {a: b}":                     "f:2: policy a: table must be a text",
		"name: a\nname: b":                           "f:2: policy a: name is given twice",
		"name: a\nolder_than: {}\nolderThan: {}":     "f:3: policy a: olderThan is given twice",
		"name: a\nolderThan: {days: 1, hours: 0}":    "f:2: policy a: olderThan.hours cannot be given beside days",
		"name: a\nundo: 3 x":                         `f:2: policy a: undo must be a time such as 90m, 12h or 30d, not "3 x"`,
		"name: a\nundo: {seconds: 3}":                `f:2: policy a: undo must be a time such as 90m, 12h or 30d, not ""`,
		"name: a\nundo: [1h]":                        `f:2: policy a: undo must be a time such as 90m, 12h or 30d, not ""`,
		"name: a\netag: x":                           "f:2: policy a: etag is set by the server: leave it out",
		"name: a\nwarnings: []":                      "f:2: policy a: warnings is set by the server: leave it out",
		"table: t":                                   "f:1: name is missing",
		"- name: a\n- table: t\n- name: a": "f:2: name is missing|f:3: policy a: the name is used twice, first in " +
			"f:1",
		"policies: {}":          "f:1: policies must be a list",
		"policies: []\nname: a": "f:2: name: nothing else can be in a document with policies",
		"just a text":           "f:1: a policy must have fields",
		"- x\n- y":              "f:1: a policy must have fields|f:2: a policy must have fields",
		"name: [":               "f:1: did not find",
		"name: a\ntable: t\nenabled: true: false\nlimit: 1\n": "f:3: mapping values are not allowed",
		"name: a\ntable: t\n olderThan: {\n":                  "f:3: ",
		"policies:\n- name: a\n  table: t\n enabled: true\n":  "f:4: did not find expected",
		"name: a\nx: 1\ny: 2": "f:2: policy a: x is not a field|" +
			"f:3: policy a: y is not a field",
	} {
		_, err := parse("f", strings.NewReader(text))
		if err == nil {
			t.Errorf("%q: no error", text)
			continue
		}
		lines, wants := strings.Split(err.Error(), "\n"), strings.Split(want, "|")
		for i, want := range wants {
			if len(lines) != len(wants) || !strings.HasPrefix(lines[i], want) {
				t.Errorf("%q: %q, want %q", text, err, want)
			}
		}
	}
}

// The difference of two policies has each value that changes, with the old one before the new one.
func TestDifference(t *testing.T) {
	after := everything()
	after.Enabled, after.Description, after.KeepNewest = true, "short", nil
	after.Undo = durationpb.New(0)
	after.OlderThan.Age = &cleanupv1.OlderThan_Days{Days: 365}
	after.Filters = append(after.Filters, &cleanupv1.Filter{Column: "x", Op: cleanupv1.FilterOp_FILTER_OP_IS_NULL})
	for _, c := range []struct {
		change change
		want   string
	}{
		{change{everything(), after}, `everything changes
  - description: "a line\nand another: with \"quotes\""
  + description: short
  - enabled: false
  + enabled: true
  - olderThan.days: 730
  + olderThan.days: 365
  - keepNewest.per[0]: customer
  - keepNewest.per[1]: no
  - keepNewest.orderBy: placed
  - keepNewest.count: 3
  - undo: 72h0m0s
  + undo: 0s
  + filters[2]: {column: x, op: IS_NULL}
`},
		{change{nil, &cleanupv1.Policy{Name: "a", Table: "t"}}, "a is new\n  + table: t\n  + enabled: false\n"},
		{
			change{&cleanupv1.Policy{Name: "a", Table: "t"}, nil},
			"a is deleted\n  - table: t\n  - enabled: false\n",
		},
	} {
		var out strings.Builder
		if err := c.change.print(&out); err != nil || out.String() != c.want || !c.change.differs() {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
	same := everything()
	same.Etag, same.Warnings = "x", []*cleanupv1.Message{{Code: "Y"}}
	if (change{everything(), same}).differs() {
		t.Error("what the server sets is no difference")
	}
}

func TestWords(t *testing.T) {
	p := everything()
	p.Filters[0].Values = []string{"a", "b", "c", "d", "e", "f", "g"}
	const want = "placed older than 730 days, and status in (a, b, c, d, e, and 2 more), and note is not null, and no " +
		"shop.customer with id = customer, and not among the 3 newest per customer, no by placed"
	if got := condition(p); got != want {
		t.Errorf("%s\n%s", got, want)
	}
	if got := action(p); got != `set email = NULL, name = ""` {
		t.Error(got)
	}
	for text, f := range map[string]*cleanupv1.Filter{
		"a <= 5":          {Column: "a", Op: cleanupv1.FilterOp_FILTER_OP_LESS_OR_EQUAL, Values: []string{"5"}},
		"a starts with x": {Column: "a", Op: cleanupv1.FilterOp_FILTER_OP_STARTS_WITH, Values: []string{"x"}},
		"a not in (x, y)": {Column: "a", Op: cleanupv1.FilterOp_FILTER_OP_NOT_IN, Values: []string{"x", "y"}},
		"a is null":       {Column: "a", Op: cleanupv1.FilterOp_FILTER_OP_IS_NULL},
		"a 99 (x)":        {Column: "a", Op: 99, Values: []string{"x"}}, // of a newer server
	} {
		if got := comparison(f); got != text {
			t.Errorf("%s, want %s", got, text)
		}
	}
}

// The parser does not panic, and the policies that it returns survive being encoded and parsed again.
func FuzzParse(f *testing.F) {
	text, err := encode([]*cleanupv1.Policy{everything()})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{text, "a: &x [*x]", "name: &a\n  <<: *a", "&a *a", "? {a: b}\n: c", "policies: *x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		found, err := parse("f", strings.NewReader(text))
		if err != nil {
			return
		}
		var list []*cleanupv1.Policy
		for _, e := range found {
			list = append(list, e.policy)
		}
		again, err := encode(list)
		if err != nil {
			t.Fatal(err)
		}
		read, err := parse("f", strings.NewReader(again))
		if err != nil || len(read) != len(list) {
			t.Fatalf("%v\n%s", err, again)
		}
		for i := range read {
			if !proto.Equal(read[i].policy, list[i]) {
				t.Errorf("%v\n%v\n%s", list[i], read[i].policy, again)
			}
		}
	})
}
