package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/cleanupd/cleanupd/internal/suite"
)

var update = flag.Bool("update", false, "write what commands print to testdata, instead of comparing it")

// Texts that differ between two runs of a command are replaced, with the blanks that align them.
var volatile = []struct {
	what *regexp.Regexp
	by   string
}{
	{
		regexp.MustCompile(`(?m)^([^\n]*\n[^\n]*?\x1b\[K\x1b\[A\x1b\[K)+`),
		"",
	}, // progress that was drawn and erased, more often on a slow machine
	{regexp.MustCompile(`(?m)^A wider terminal also shows ((DEAD|FREE)[,.] ?)+\n`), ""}, // as wide as the sizes are
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]*…`), "ID…"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(` +\d[\d.]* (ms|s)\b`), "  DURATION"},
	{
		regexp.MustCompile(`( 12,345( .*)?  DURATION) +\d+`),
		"$1 BATCHES",
	}, // the number of batches depends on the machine
	{regexp.MustCompile(` +TOOK`), "  TOOK"},
	{regexp.MustCompile(` +\d[\d.]* [KM]?i?B`), "  SIZE"},
	{regexp.MustCompile(` +(BEFORE|AFTER|DEAD|FREE)`), "  $1"},
	{regexp.MustCompile(`(?m)^(TABLE +DELETED|"public"\S+ +\S+)( +(SIZE|BEFORE|AFTER|DEAD|FREE))+$`), "$1  SIZES"},
	{regexp.MustCompile(`OF +BYTES`), "OF  BYTES"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\d \d\d(:\d\d UTC|…)`), "MOMENT"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST:PORT"},
	{regexp.MustCompile(`cleanupd (\(devel\)|v\d\S*) \(go[^)]*\)`), "cleanupd VERSION"},
	{regexp.MustCompile(`\x1b`), `\e`},
}

// onScreen returns what a command prints to a terminal of a width, or in this process to a pipe if it is 0, without
// volatile texts.
func onScreen(t *testing.T, width int, env []string, args ...string) string {
	t.Helper()
	if width == 0 {
		text := &logged{more: make(chan struct{})}
		if code := run(t.Context(), args, text, text); code != 0 {
			t.Errorf("%v: %d: %s", args, code, text)
		}
		return withoutVolatile(text.String())
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "TERM=xterm", "NO_COLOR="), env...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: uint16(width)})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(terminal)
	if errors.Is(err, syscall.EIO) { // what reading from a closed terminal returns
		err = nil
	}
	if err = errors.Join(err, cmd.Wait(), terminal.Close()); err != nil {
		t.Errorf("%v at %d columns: %v: %s", args, width, err, text)
	}
	return withoutVolatile(strings.ReplaceAll(string(text), "\r\n", "\n"))
}

func withoutVolatile(text string) string {
	for _, v := range volatile {
		text = v.what.ReplaceAllString(text, v.by)
	}
	return text
}

// Each command prints the text in its file in testdata/golden: to a pipe, on a narrow terminal and on a wide one. JSON
// and YAML have the same content.
func TestScreens(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	forms := formsOf(t, 12, "")
	s := startServer(t, "--database-url", db.URL(), "--forms-database-url", forms.URL(), "--forms-gds-in-database")
	obsolete := func() {
		db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 12345) i;
			INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2000-01-01' FROM generate_series(1, 20) i`)
	}
	nothing := func() {}
	widths := suite.Size(suite.Long, []int{0}, []int{0, 60, 120})
	if *update {
		widths = []int{0, 60, 120}
	}
	code, out, errs := s.run(t, "run --task sessions")
	id := regexp.MustCompile(`Run (\S+) succeeded`).FindStringSubmatch(out)
	if code != 0 || id == nil {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	db.Do(
		"INSERT INTO cleanupd.remote_delivery (account, remote_id, delivery_id, label, run_id) VALUES ('mid1', " +
			"5000000007, 7, 'spring sale', '" + id[1] + "')",
	)
	code, out, errs = s.run(t, "userdata erase --orphan-task 99998 --yes")
	receipt := regexp.MustCompile(`Receipt (\S+)`).FindStringSubmatch(out)
	if code != 0 || receipt == nil {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	forms.Do("ALTER TABLE tb_process_instance ADD ended date")
	forms.Do(
		"INSERT INTO tb_dm_chunk VALUES ('stale', 0, ''); INSERT INTO tb_dm_session_reference VALUES ('stale', " +
			"'_wfattach99998')",
	)
	var inBoth []func(t *testing.T)
	for _, c := range []struct {
		name, args string
		before     func()
	}{
		{"version", "version", nothing},
		{"help", "run --help", nothing},
		{"migrate", "migrate", nothing},
		{"health", "health --ready", nothing},
		{"tasks", "tasks", nothing},
		{"options", "options", nothing},
		{"options-set", "options set --yes broadLogPurgeDelayDays=120", nothing},
		{"options-reset", "options reset broadLogPurgeDelayDays", nothing},
		{"schedule", "schedule", nothing},
		{"schedule-set", "schedule set --cron 30§3§*§*§1-6 --time-zone Europe/Berlin --max-duration 2h", nothing},
		{
			"schedule-windows",
			"schedule set --pace gentle --window MON,TUE,WED,THU,FRI§20:00-06:00§fast --window SAT,SUN§00:00-00:00 " +
				"--pause-stops-clock",
			nothing,
		},
		{"help-pace", "runs pace --help", nothing},
		{
			"run-dry",
			"run --dry-run --task audit-trail --task sessions",
			func() {
				db.Do("DELETE FROM XtkAudit; DELETE FROM XtkSessionInfo")
				obsolete()
			},
		},
		{
			"run",
			"run --yes --task audit-trail --task sessions --task import-rejects",
			func() {
				db.Do("DELETE FROM XtkAudit; DELETE FROM XtkSessionInfo")
				obsolete()
			},
		},
		{"runs", "runs --limit 1", nothing},
		{"runs-watch", "runs watch " + id[1], nothing},
		{"runs-show", "runs show " + id[1], nothing},
		{"leftovers", "mid-sourcing leftovers", nothing},
		{"find", "userdata find ann --variable Loans/apply", nothing},
		{"erase-dry", "userdata erase ann --dry-run", nothing},
		{"erase", "userdata erase --orphan-task 99999 --yes", nothing},
		{"receipts", "userdata receipts --limit 1", nothing},
		{"audit", "audit --limit 1", nothing},
		{"sweep", "userdata sweep --dry-run", nothing},
		{"purges-set", "userdata purges set old-loans --application Loans --date-column ended --days 365", nothing},
		{"purges", "userdata purges", nothing},
		{
			"policies-set",
			"policies set -f testdata/policy.yaml",
			func() {
				db.Do("CREATE TABLE IF NOT EXISTS cusorder (id int, status text, placed timestamptz, email text)")
			},
		},
		{"policies", "policies", nothing},
		{"policies-get", "policies get old-orders", nothing},
		{"receipt", "userdata receipt " + receipt[1], nothing},
		{"verify", "userdata verify " + receipt[1], nothing},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "§", " ")
		}
		switch args[0] {
		case "version":
		case "health":
			args = append(args, "--http-listen", strings.TrimPrefix(s.http, "http://"))
		case "migrate":
			args = append(args, "--database-url", db.URL())
		default:
			args = append(args, "--server", s.grpc)
		}
		t.Run(c.name, func(t *testing.T) {
			got := &txtar.Archive{
				Comment: []byte("cleanupd " + strings.NewReplacer(
					"§", " ", id[1], "ID", receipt[1], "ID",
				).Replace(c.args) + "\n\n"),
			}
			for _, width := range widths {
				c.before()
				name := strconv.Itoa(width)
				if width == 0 {
					name = "pipe"
				}
				got.Files = append(got.Files, txtar.File{Name: name, Data: []byte(onScreen(t, width, nil, args...))})
			}
			file := filepath.Join("testdata", "golden", c.name+".txtar")
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(file)
			want := txtar.Parse(text)
			want.Files = want.Files[:min(len(want.Files), len(widths))]
			if err != nil || !bytes.Equal(txtar.Format(want), txtar.Format(got)) {
				t.Errorf("%v; want (go test ./cmd/cleanupd -run TestScreens -update writes it)\n%s\ngot\n%s", err,
					txtar.Format(want), txtar.Format(got))
			}
		})
		// a message, a list, a stream of each service, and a policy: the others are printed in the same ways
		kinds := []string{"options", "runs", "run-dry", "erase-dry", "policies-get"}
		if cmd, _, err := newRoot().Find(args); err != nil || cmd.Flag("output") == nil ||
			slices.Contains(args, "--help") || !suite.Long.Requested() && !slices.Contains(kinds, c.name) {
			continue
		}
		inBoth = append(inBoth, func(t *testing.T) {
			c.before()
			sameInJSONAndYAML(t, args)
		})
	}
	for _, test := range inBoth { // after the screens, which show the runs so far
		test(t)
	}
}

// A command prints the same keys in both formats.
func sameInJSONAndYAML(t *testing.T, args []string) {
	t.Helper()
	code, out, errs := cleanupd(t, append(slices.Clone(args), "-o", "json")...)
	var fields [2][]string
	for lines := json.NewDecoder(strings.NewReader(out)); ; {
		var value map[string]any
		err := lines.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || code != 0 {
			t.Fatalf("as JSON: %v: %d %s %s", err, code, out, errs)
		}
		fields[0] = append(fields[0], keys(value)...)
	}
	code, out, errs = cleanupd(t, append(slices.Clone(args), "-o", "yaml")...)
	for document := range strings.SplitSeq(strings.TrimPrefix(out, "---\n"), "\n---\n") {
		var value map[string]any
		if err := yaml.Unmarshal([]byte(document), &value); err != nil || code != 0 {
			t.Fatalf("as YAML: %v: %d %s %s", err, code, out, errs)
		}
		fields[1] = append(fields[1], keys(value)...)
	}
	for i := range fields {
		slices.Sort(fields[i])
		fields[i] = slices.Compact(fields[i])
	}
	if len(fields[0]) == 0 || !slices.Equal(fields[0], fields[1]) {
		t.Errorf("%v: JSON has %v, YAML has %v", args, fields[0], fields[1])
	}
}

func keys(value map[string]any) (list []string) {
	for key := range value {
		list = append(list, key)
	}
	return list
}

// No escape sequences are printed to a terminal that cannot move its cursor, and no colours for a user who wants none;
// the words are the same.
func TestPlainTerminals(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	s := startServer(t, "--database-url", db.URL())
	run := func(env string) string {
		return onScreen(t, 100, []string{env}, "run", "--dry-run", "--task", "sessions", "--server", s.grpc)
	}
	coloured := run("TERM=xterm")
	if !strings.Contains(coloured, `\e[32msucceeded\e[0m`) {
		t.Errorf("no colour: %s", coloured)
	}
	want := regexp.MustCompile(`\\e\[\d+m`).ReplaceAllString(coloured, "")
	for _, env := range []string{"TERM=dumb", "NO_COLOR=1"} {
		if got := run(env); got != want {
			t.Errorf("with %s: %s, want %s", env, got, want)
		}
	}
}
