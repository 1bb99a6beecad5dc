package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// An error says why a connection was refused, without the attempt with TLS that preceded it.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	config, err := pgconn.ParseConfig(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // TLS is not tried on a socket of Unix
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, address)
			if err != nil {
				t.Error(err)
				return
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, c := range []struct{ address, more, want string }{
		{l.Addr().String(), "", `database "nowhere" does not exist`},
		{l.Addr().String(), "?sslmode=require", "server refused TLS connection"},
		{closed.Addr().String(), "", "connection refused"},
	} {
		url := "postgres://" + config.User + "@" + c.address + "/nowhere" + c.more
		code, out, errs := cleanupd(t, "runs", "--database-url", url)
		if code != 1 || strings.Count(errs, c.want) != 1 ||
			strings.Contains(errs, "TLS") != strings.Contains(c.want, "TLS") {
			t.Errorf("%s: %d %s%s, want %s once", url, code, out, errs, c.want)
		}
	}
}

// startWithoutServer starts a command on a database, with further variables, and records what it prints.
func startWithoutServer(t *testing.T, db *pgtest.DB, env []string, args ...string) (*exec.Cmd, *logged) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(args, "--database-url", db.URL())...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	log := &logged{more: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, log
}

// Interrupting the command stops its run after the batch. Read-only commands do not resume it, and show it as
// interrupted. The next run resumes it first, as a replica of the service that the database belongs to, and sends the
// notification of its end.
func TestWithoutServerContinues(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := campaign(t)
	serve := startServer(t, "--database-url", db.URL(), "--instance", "prod")
	_ = serve.cmd.Process.Signal(syscall.SIGTERM)
	_ = serve.cmd.Wait()
	release := db.Sessions(2000)
	var notified atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { notified.Add(1) }))
	defer receiver.Close()
	program := func(args ...string) (*exec.Cmd, *logged) {
		return startWithoutServer(t, db, []string{"CLEANUPD_NOTIFY=" + receiver.URL}, args...)
	}
	first, log := program("run", "--task", "sessions")
	untilDeleting(db)
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	release()
	_ = first.Wait()
	deleted := 2000 - db.Int("SELECT count(*) FROM XtkSessionInfo")
	found := regexp.MustCompile(`run (\S+) stops after the current batch, .*: resume it with cleanupd runs watch `).
		FindStringSubmatch(log.String())
	if code := first.ProcessState.ExitCode(); code != exitInterrupted || found == nil || deleted == 0 || deleted == 2000 {
		t.Fatalf("%d, %d rows deleted: %s", code, deleted, log)
	}
	if strings.Contains(log.String(), "level=") {
		t.Errorf("the log of the command's own server is on the terminal: %s", log)
	}
	for command, want := range map[string]string{
		"runs":                  `(?m)^` + found[1] + ` +interrupted `,
		"runs show " + found[1]: `It was interrupted, and no server has it: .* cleanupd runs watch ` + found[1],
	} {
		code, out, errs := cleanupd(t, append(strings.Fields(command), "--database-url", db.URL())...)
		if code != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %d %s %s, want %s", command, code, out, errs, want)
		}
	}
	if code, shown := onTerminal(t, "n", "run", "--database-url", db.URL()); code != 1 ||
		!regexp.MustCompile(`First +run `+found[1]+` of .*, which was interrupted, is resumed`).MatchString(shown) {
		t.Errorf("%d %s", code, shown)
	}
	if code, _, errs := cleanupd(t, "run", "--dry-run", "--task", "visitors", "--database-url", db.URL()); code != 0 {
		t.Errorf("a dry run beside the interrupted run: %d %s", code, errs)
	}
	if now := 2000 - db.Int("SELECT count(*) FROM XtkSessionInfo"); now != deleted {
		t.Errorf("other commands deleted %d rows of the interrupted run", now-deleted)
	}
	second, log := program("run", "--task", "visitors")
	_ = second.Wait()
	if code := second.ProcessState.ExitCode(); code != 0 || !regexp.MustCompile(`(?s)Run `+found[1]+` of \S+ `+
		`was interrupted, and is resumed first\..*\nsessions +succeeded +2,000 .*\nvisitors +succeeded `,
	).MatchString(log.String()) {
		t.Errorf("%d %s", code, log)
	}
	db.Do(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
		INSERT INTO XtkSessionInfo VALUES ('a', 'x', '2000-01-01', '');
		CREATE TRIGGER refuse BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION refuse()`)
	third, log := program("run", "--task", "sessions")
	if _ = third.Wait(); third.ProcessState.ExitCode() != 1 || notified.Load() != 1 {
		t.Errorf("%d, %d notifications: %s", third.ProcessState.ExitCode(), notified.Load(), log)
	}
}
