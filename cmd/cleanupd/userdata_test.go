package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// The document storage is in the database, or in a folder.
func formsOf(t testing.TB, instances int, folder string) *pgtest.DB {
	t.Helper()
	fill := func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, formsdb.Schema)
		return errors.Join(err, formsdb.Generate(rand.New(rand.NewPCG(2, 0)), instances, folder != "").
			Load(ctx, conn, folder))
	}
	if folder == "" {
		return pgtest.Prepared(t, fmt.Sprint("forms_", instances), fill)
	}
	db := pgtest.Empty(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := fill(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	return db
}

type database interface {
	Do(statement string, args ...any)
	Int(query string, args ...any) int64
	Strings(query string, args ...any) []string
}

type formsDB struct {
	database
	url  string
	slow string // the statement by which rows of tb_process_instance are deleted slowly
	own  string // the prefix of the service's own tables
}

// onBoth runs a test with a Forms database on each kind of server, with its documents in the database or in a folder.
func onBoth(t *testing.T, instances int, inFolder bool, test func(t *testing.T, forms *formsDB, folder string)) {
	t.Parallel()
	for _, on := range []string{"PostgreSQL", "MySQL"} {
		t.Run(on, func(t *testing.T) {
			suite.Except(t, suite.Long, "PostgreSQL") // the tests of userdata have both
			t.Parallel()
			folder := ""
			if inFolder {
				folder = t.TempDir()
			}
			if on == "PostgreSQL" {
				db := formsOf(t, instances, folder)
				test(
					t,
					&formsDB{
						db,
						db.URL(),
						`CREATE FUNCTION slow() RETURNS trigger
							LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN OLD; END';
					CREATE TRIGGER slow BEFORE DELETE ON tb_process_instance FOR EACH ROW EXECUTE FUNCTION slow()`,
						"cleanupd.forms_",
					},
					folder,
				)
				return
			}
			db := mysqltest.Empty(t, "utf8mb4")
			db.Do(formsdb.MySQLSchema)
			if err := formsdb.Generate(rand.New(rand.NewPCG(2, 0)), instances, inFolder).
				LoadMySQL(t.Context(), db.DB, folder); err != nil {
				t.Fatal(err)
			}
			test(t,
				&formsDB{
					db, db.URL("root"),
					"CREATE TRIGGER slow BEFORE DELETE ON tb_process_instance FOR EACH ROW DO SLEEP(0.01)", "cleanupd_",
				},
				folder)
		})
	}
}

func TestUserData(t *testing.T) {
	onBoth(t, 40, false, testUserData)
}

func testUserData(t *testing.T, forms *formsDB, _ string) {
	if code, out, errs := cleanupd(t, "migrate", "--forms-database-url", forms.url); code != 0 || !strings.Contains(
		out, "up to date",
	) ||
		forms.Int("SELECT count(*) FROM "+forms.own+"ledger") != 0 {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	db := campaign(t)
	s := startServer(t, "--database-url", db.URL(), "--forms-database-url", forms.url, "--forms-gds-in-database")
	ask := func(args ...string) (int, string, string) {
		t.Helper()
		return cleanupd(t, append(args, "--server", s.grpc)...)
	}
	code, out, errs := ask("userdata", "find", "ann", "--variable", "Loans/apply:applicant",
		"--variable", "Loans/folder/sub/review")
	if code != 0 || !strings.Contains(out, "Principals: P0\n") || !strings.Contains(out, "participant") ||
		!strings.Contains(out, "Orphan tasks: ") ||
		!strings.Contains(out, "Cannot be found: ") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := ask("userdata", "erase", "ann"); code != 2 || !strings.Contains(errs, "--yes") {
		t.Errorf("erased without asking: %d %s", code, errs)
	}
	for _, mistake := range []string{
		"erase --yes", "erase ann --task 1 --yes", "erase ann --instance 1 --yes", "erase --task 0 --yes",
		"find --variable x/y ",
	} {
		args := strings.Split("userdata "+mistake, " ")
		if code, _, errs := ask(args...); code != 2 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d %s", mistake, code, errs)
		}
	}
	before := forms.Int("SELECT count(*) FROM tb_task")
	if code, out, errs := ask("userdata", "erase", "ann", "--dry-run"); code != 0 || !strings.Contains(
		out, "would be erased (rows: ",
	) ||
		forms.Int("SELECT count(*) FROM tb_task") != before {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs := ask("userdata", "erase", "ann", "--yes"); code != 0 || !strings.Contains(out, "\nReceipt ") ||
		forms.Int("SELECT count(*) FROM tb_task") >= before {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := ask("userdata", "erase", "bob", "--yes"); code != 1 ||
		!strings.Contains(errs, "several principals") {
		t.Errorf("%d %s", code, errs)
	}
	if code, out, errs := ask("userdata", "erase", "--task", "99999", "--yes"); code != 0 ||
		!strings.Contains(out, "task 99999 does not exist") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	live := strings.TrimSpace(
		forms.Strings("SELECT CAST(id AS char(20)) FROM tb_task WHERE process_instance_id > 0 LIMIT 1")[0])
	if code, out, errs := ask("userdata", "erase", "--task", live, "--yes"); code != 1 || !strings.Contains(
		out, "task "+live+" retained",
	) || !strings.Contains(out, "\n0 process instances, 0 "+
		"orphan tasks, 0 files erased") ||
		!strings.Contains(errs, "not everything was erased") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	_, list, _ := ask("userdata", "receipts")
	receipt := strings.Fields(strings.Split(list, "\n")[3])[0] // of ann's
	if code, out, errs := ask("userdata", "verify", receipt, "ann"); code != 0 ||
		!strings.Contains(out, "process instances left") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := ask("userdata", "verify", receipt, "bob"); (code != 2 && code != 1) ||
		!strings.Contains(errs, "user id of this erasure") {
		t.Errorf("%d %s", code, errs)
	}
	page := filepath.Join(t.TempDir(), "receipt.html")
	for _, want := range []int{0, 1} { // a file that is there is not overwritten
		if code, out, errs := ask("userdata", "receipt", receipt, "--html", page); code != want {
			t.Errorf("%d %s %s", code, out, errs)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), receipt) || !strings.Contains(
		string(text), "everything was erased",
	) ||
		!strings.Contains(string(text), "nothing was found") {
		t.Errorf("%s %v", text, err)
	}
	if code, out, errs := ask("userdata", "receipt", receipt, "-o", "json"); code != 0 ||
		!strings.Contains(out, `"clean"`) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := ask("userdata", "sweep"); code != 2 || !strings.Contains(errs, "--yes") {
		t.Errorf("swept without asking: %d %s", code, errs)
	}
	forms.Do(
		"INSERT INTO tb_dm_chunk VALUES ('stale', 0, ''); INSERT INTO tb_dm_session_reference VALUES ('stale', " +
			"'_wfattach999999')",
	)
	forms.Do("INSERT INTO tb_task (id) VALUES (1000000)")
	if code, out, errs := ask("userdata", "sweep", "--yes"); code != 0 || !strings.Contains(
		out, " sessions name a task or form data that does not exist",
	) ||
		!strings.Contains(out, "\n0 documents in the database, 0 files erased") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	db.Do("UPDATE cleanupd.dead_session SET found_time = found_time - interval '1 hour'")
	if code, out, errs := ask("userdata", "sweep", "--dry-run"); code != 0 ||
		!strings.Contains(
			out,
			"document stale of _wfattach999999 would be erased (rows: 1 of tb_dm_chunk, 1 of tb_dm_session_reference)",
		) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs := ask("userdata", "sweep", "--yes"); code != 0 || !strings.Contains(
		out, "document stale of _wfattach999999 erased",
	) ||
		!strings.Contains(out, " documents in the database, 0 files erased") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs := ask("userdata", "receipts"); code != 0 || errs != "" || strings.Count(out, "\n") != 6 ||
		!strings.Contains(out, "true") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs := ask("userdata", "receipts", "--limit", "1"); code != 0 || strings.Count(out, "\n") != 2 ||
		!strings.Contains(errs, "There are more entries") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// erasing starts a server and, in the background, a client that erases every process instance. The client's exit status
// is sent to ended; args start another server on the same database.
func erasing(
	t *testing.T, forms *formsDB, storage ...string,
) (first *replica, ended chan int, args []string, db *pgtest.DB) {
	t.Helper()
	db = campaign(t)
	args = append([]string{"--lease", "1s", "--database-url", db.URL(), "--forms-database-url", forms.url}, storage...)
	first = startServer(t, args...)
	erase := []string{"userdata", "erase", "--yes", "--server", first.grpc}
	for _, id := range forms.Strings("SELECT CAST(id AS char(20)) FROM tb_process_instance") {
		erase = append(erase, "--instance", strings.TrimSpace(id))
	}
	ended = make(chan int, 1)
	go func() {
		ended <- run(t.Context(), erase, &logged{more: make(chan struct{})}, &logged{more: make(chan struct{})})
	}()
	return first, ended, args, db
}

// A server is killed at a certain point while it erases every process instance, and another one finishes.
func killed(
	t *testing.T, forms *formsDB, moment func(db *pgtest.DB), storage ...string,
) (second *replica, db *pgtest.DB) {
	t.Helper()
	first, ended, args, db := erasing(t, forms, storage...)
	moment(db)
	if err := first.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait()
	if code := <-ended; code != 1 {
		t.Errorf("the client ended with %d", code)
	}
	if db.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'RUNNING'") == 0 {
		t.Fatal("the erasure was through before its server was killed")
	}
	second = startServer(t, args...)
	db.Until("SELECT count(*) FROM cleanupd.erasure WHERE state = 'SUCCEEDED'")
	return second, db
}

// Without a server, interrupting the command stops the erasure. Read-only commands do not resume it; the next erasure
// does, before its own work.
func TestErasureWithoutServerIsResumed(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	forms := formsOf(t, 300, "")
	forms.Do(`CREATE FUNCTION slow() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.03); RETURN OLD; END';
		CREATE TRIGGER slow BEFORE DELETE ON tb_process_instance FOR EACH ROW EXECUTE FUNCTION slow()`)
	db := campaign(t)
	program := func(args ...string) (*exec.Cmd, *logged) {
		return startWithoutServer(t, db, []string{
			"CLEANUPD_FORMS_DATABASE_URL=" + forms.URL(), "CLEANUPD_FORMS_GDS_IN_DATABASE=true",
		}, args...)
	}
	erase := []string{"userdata", "erase", "--yes"}
	for _, id := range forms.Strings("SELECT id::text FROM tb_process_instance") {
		erase = append(erase, "--process-instance", id)
	}
	first, log := program(erase...)
	log.wait(t.Context(), "process instance .* erased")
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	left := forms.Int("SELECT count(*) FROM tb_process_instance")
	if code := first.ProcessState.ExitCode(); code != exitInterrupted || left == 0 || left == 300 ||
		!strings.Contains(log.String(), "the next cleanupd userdata erase or sweep, or a server, resumes it") ||
		strings.Contains(log.String(), "level=") {
		t.Fatalf("%d, %d process instances are left: %s", code, left, log)
	}
	for _, look := range []string{"userdata receipts", "userdata erase ann --dry-run", "runs"} {
		cmd, log := program(strings.Fields(look)...)
		if err := cmd.Wait(); err != nil || forms.Int("SELECT count(*) FROM tb_process_instance") != left {
			t.Errorf("%s: %v: %s", look, err, log)
		}
	}
	second, log := program("userdata", "erase", "--yes", "--orphan-task", "99999")
	_ = second.Wait()
	if left := forms.Int("SELECT count(*) FROM tb_process_instance"); left != 0 ||
		!regexp.MustCompile(`The erasure (\S+) of \S+ has not ended, and is resumed first\.\n`+
			`The erasure \S+ has ended; everything was erased\.\n`).MatchString(log.String()) {
		t.Errorf("%d process instances are left: %s", left, log)
	}
}

// The record of an erasure of 300 process instances has each of them once, and all of their tasks.
func accounted(t *testing.T, forms *formsDB, db *pgtest.DB, tasks int64) {
	t.Helper()
	if left := forms.Int(
		"SELECT (SELECT count(*) FROM tb_process_instance) + (SELECT count(*) FROM tb_task WHERE process_instance_id " +
			"> 0)",
	); left != 0 {
		t.Errorf("%d rows are left", left)
	}
	if n := db.Int("SELECT rows FROM cleanupd.erasure_rows WHERE relation = 'tb_task'"); n != tasks {
		t.Errorf("%d tasks are accounted for, of %d", n, tasks)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.erasure_event WHERE body ? 'Instance'"); n != 300 {
		t.Errorf("%d process instances were told of", n)
	}
}

// A server that is frozen during an erasure keeps its connections, and the locks on them, for a while. Another one
// takes over nevertheless, and the first one can change nothing after it wakes up.
func TestErasureOfAFrozenServer(t *testing.T) {
	suite.Only(t, suite.Long)
	onBoth(t, 300, false, func(t *testing.T, forms *formsDB, _ string) {
		forms.Do(forms.slow)
		tasks := forms.Int("SELECT count(*) FROM tb_task WHERE process_instance_id > 0")
		first, ended, args, db := erasing(t, forms, "--forms-gds-in-database")
		db.Until("SELECT count(*) FROM cleanupd.erasure_event WHERE body ? 'Instance'")
		if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if db.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'RUNNING'") == 0 {
			t.Fatal("the erasure was through before its server was frozen")
		}
		startServer(t, args...)
		db.Until("SELECT count(*) FROM cleanupd.erasure WHERE state = 'SUCCEEDED'")
		if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if code := <-ended; code > 1 { // it may have given up on its server
			t.Errorf("the client of the frozen server ended with %d", code)
		}
		accounted(t, forms, db, tasks)
	})
}

// A server that is killed during an erasure finishes it after its next start.
func TestErasureOfAKilledServer(t *testing.T) {
	suite.Only(t, suite.Long)
	onBoth(t, 300, false, func(t *testing.T, forms *formsDB, _ string) {
		forms.Do(forms.slow)
		tasks := forms.Int("SELECT count(*) FROM tb_task WHERE process_instance_id > 0")
		second, db := killed(t, forms, func(*pgtest.DB) {
			for left := int64(300); left == 300 || left == 0; left = forms.Int("SELECT count(*) FROM " +
				"tb_process_instance") {
				time.Sleep(time.Millisecond)
			}
		}, "--forms-gds-in-database")
		accounted(t, forms, db, tasks)
		if code, out, errs := second.run(t, "userdata receipts"); code != 0 ||
			!strings.Contains(out, "  300  ") {
			t.Errorf("%d %s %s", code, out, errs)
		}
	})
}

// The receipt names each deleted file once, even if the server is killed after it deleted some and before it reported
// them.
func TestFilesOfAKilledServer(t *testing.T) {
	suite.Only(t, suite.Long)
	onBoth(t, 100, true, func(t *testing.T, forms *formsDB, folder string) {
		before := filesIn(t, folder)
		_, db := killed(t, forms, func(db *pgtest.DB) {
			db.Do(
				`CREATE FUNCTION slow() RETURNS trigger
					LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN OLD; END';
					CREATE TRIGGER slow BEFORE DELETE ON cleanupd.erasure_file FOR EACH STATEMENT
					EXECUTE FUNCTION slow()`,
			)
			for begin := time.Now(); len(filesIn(t, folder)) > len(before)-300; time.Sleep(time.Millisecond) {
				if time.Since(begin) > 2*time.Minute {
					t.Fatal("no file was deleted")
				}
			}
		}, "--forms-gds-dir", folder)
		told, after := db.Strings("SELECT body ->> 'File' FROM cleanupd.erasure_event WHERE body ? 'File'"), filesIn(t,
			folder)
		gone := slices.DeleteFunc(before, func(name string) bool { return slices.Contains(after, name) })
		slices.Sort(told)
		if !slices.Equal(told, gone) {
			t.Errorf("told of %d files, %d are gone", len(told), len(gone))
		}
		if n := db.Int("SELECT count(*) FROM cleanupd.erasure_file"); n != 0 {
			t.Errorf("%d files are still about to go", n)
		}
	})
}

// The names are sorted.
func filesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	if err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		if errors.Is(err, fs.ErrNotExist) { // deleted in the meantime
			return nil
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestFormsDemo(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	pgtest.Empty(t)
	mysqltest.Empty(t, "utf8mb4")
	for _, engine := range []string{"postgres", "mysql"} {
		code, out, errs := cleanupd(t, "demo", "--forms", "--forms-engine", engine)
		if code != 0 || strings.Count(out, "cleanupd userdata find") != 2 ||
			!strings.Contains(out, "Orphan tasks: none") {
			t.Errorf("%s: %d %s %s", engine, code, out, errs)
		}
	}
}

// Many tasks and documents are searched, and a thousand process instances erased, with progress, in constant memory.
func TestErasureOfMuch(t *testing.T) {
	suite.Only(t, suite.Long)
	onBoth(t, 0, false, func(t *testing.T, forms *formsDB, _ string) {
		const tasks, documents, instances = 100_000, 20_000, 1_000
		numbers := func(n int) string { // a relation of the numbers up to n, in its column i
			if forms.own == "cleanupd_" {
				return fmt.Sprintf("(SELECT seq AS i FROM seq_1_to_%d) AS s", n)
			}
			return fmt.Sprintf("generate_series(1, %d) AS s (i)", n)
		}
		for _, statement := range []string{
			"INSERT INTO tb_process_instance SELECT i + 1000000, 'x', 2 FROM " + numbers(tasks/10),
			"INSERT INTO tb_task SELECT i + 1000000, 1, 'P0', 1000000 + (i - 1) % 10000 + 1 FROM " + numbers(tasks),
			"INSERT INTO tb_form_data SELECT i + 1000000, i + 1000000 FROM " + numbers(tasks),
			"INSERT INTO tb_dm_chunk SELECT concat('d', i), 0, 'content' FROM " + numbers(documents),
			"INSERT INTO tb_dm_session_reference SELECT concat('d', i), concat('_wfattach', i + 1000000) FROM " +
				numbers(documents),
			"INSERT INTO tb_101 (process_instance_id, applicant) SELECT i + 1000000, 'ann' FROM " + numbers(tasks/10),
		} {
			forms.Do(statement)
		}
		s := startServer(t, "--database-url", campaign(t).URL(), "--forms-database-url", forms.url,
			"--forms-gds-in-database")
		before := peak(t, s)
		if code, out, errs := s.run(t, "userdata find ann --variable Loans/apply:applicant"); code != 0 ||
			strings.Count(out, "initiator") != tasks/10 {
			t.Errorf("%d %d %s", code, strings.Count(out, "initiator"), errs)
		}
		erase := []string{"userdata", "erase", "--yes", "--server", s.grpc}
		for i := range instances {
			erase = append(erase, "--instance", strconv.Itoa(1_000_001+i))
		}
		code, out, errs := cleanupd(t, erase...)
		if code != 0 || strings.Count(out, "\nprocess instance ") != instances-1 ||
			!strings.Contains(out, "2,000 of tb_dm_chunk") ||
			!strings.Contains(out, "10,000 of tb_task)") {
			t.Errorf("%d %.2000s %s", code, out[max(0, len(out)-1000):], errs)
		}
		if grown := peak(t, s) - before; grown > 300<<20 {
			t.Errorf("the server's memory grew by %d MiB", grown>>20)
		} else {
			t.Logf("the server's memory grew by %d MiB", grown>>20)
		}
	})
}

// In bytes.
func peak(t *testing.T, s *replica) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Skip(err)
	}
	var kib int64
	if _, err := fmt.Sscanf(
		string(status[strings.Index(string(status), "VmHWM:"):]), "VmHWM: %d kB", &kib,
	); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// A person with many process instances makes a response larger than gRPC clients accept by default.
func TestUserDataOfMany(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	const instances = 60_000
	forms := formsOf(t, 1, "")
	forms.Do(
		fmt.Sprintf(
			`ALTER TABLE tb_process_instance ALTER long_lived_invocation_id TYPE text; INSERT INTO edcprincipalentity
				VALUES ('many', 'many');
		INSERT INTO tb_process_instance SELECT i, repeat('x', 64), 2 FROM generate_series(100001, 100000 + %[1]d) i;
		INSERT INTO tb_task SELECT i, 1, 'many', i FROM generate_series(100001, 100000 + %[1]d) i`,
			instances,
		),
	)
	s := startServer(t, "--database-url", campaign(t).URL(), "--forms-database-url", forms.URL(),
		"--forms-gds-in-database")
	if code, out, errs := s.run(t, "userdata find many"); code != 0 ||
		strings.Count(out, "initiator") != instances {
		t.Errorf("%d %d instances %s", code, strings.Count(out, "initiator"), errs)
	}
}
