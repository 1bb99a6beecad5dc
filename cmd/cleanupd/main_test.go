package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/userdata"
)

// The test binary runs as the program, for tests that need a separate process.
const asProgram = "TEST_AS_CLEANUPD"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	_ = os.Setenv("XDG_CONFIG_HOME", filepath.Join(os.TempDir(), "cleanupd-without-contexts"))
	pgtest.Main(m, mysqltest.Stop)
}

// campaign returns a database with empty Campaign tables, and with those of the service, as its first start makes them.
func campaign(t testing.TB) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, "cleanupd", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, campaigndb.Schema)
		return errors.Join(err, store.Migrate(ctx, conn), userdata.Migrate(ctx, conn))
	})
}

// cleanupd runs the program in this process.
func cleanupd(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// In a separate process.
type replica struct {
	cmd        *exec.Cmd
	grpc, http string
	log, out   *logged
}

// run runs a command of words, and more arguments, that speaks with this replica.
func (r *replica) run(t *testing.T, command string, more ...string) (code int, stdout, stderr string) {
	t.Helper()
	return cleanupd(t, slices.Concat(strings.Fields(command), more, []string{"--server", r.grpc})...)
}

// logged is a log that tests can wait on.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	close(l.more)
	l.more = make(chan struct{})
	return len(p), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The groups of the pattern as soon as it matches the log, and empty ones if it never does.
func (l *logged) wait(ctx context.Context, pattern string) []string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		l.mu.Lock()
		found, more := regexp.MustCompile(pattern).FindStringSubmatch(l.text.String()), l.more
		l.mu.Unlock()
		if found != nil {
			return found
		}
		select {
		case <-more:
		case <-ctx.Done():
			return make([]string, 9)
		}
	}
}

func startServer(t testing.TB, args ...string) *replica {
	t.Helper()
	return startProgram(t, os.Args[0], args...)
}

func startProgram(t testing.TB, program string, args ...string) *replica {
	t.Helper()
	r := &replica{log: &logged{more: make(chan struct{})}, out: &logged{more: make(chan struct{})}}
	r.cmd = exec.Command(program,
		append([]string{"serve", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"}, args...)...)
	r.cmd.Env = append(os.Environ(), asProgram+"=1")
	r.cmd.Stderr, r.cmd.Stdout = r.log, r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	})
	found := r.log.wait(t.Context(), `grpc"?[=:]"?([^"\s]+)"?[ ,]"?http"?[=:]"?([^"\s]+)`)
	r.grpc, r.http = found[1], "http://"+found[2]
	return r
}
