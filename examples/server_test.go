package examples_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cleanupd/cleanupd"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/testca"
)

func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "cleanupd")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/cleanupd")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// In a separate process.
type server struct {
	cmd        *exec.Cmd
	grpc, http string // its addresses
	ca         string // the file with the authority of its certificate; empty: plain text
}

var listens = regexp.MustCompile(`grpc=(\S+) http=(\S+)`)

// serve starts a server that takes over the run of a killed server within seconds.
func serve(t *testing.T, program string, db *pgtest.DB, args ...string) *server {
	t.Helper()
	s := &server{
		cmd: exec.CommandContext(t.Context(), program,
			append(
				[]string{
					"serve", "--database-url", db.URL(), "--lease", "1s", "--grpc-listen", "127.0.0.1:0",
					"--http-listen", "127.0.0.1:0",
				},
				args...)...),
	}
	log, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(syscall.SIGKILL) })
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if found := listens.FindStringSubmatch(lines.Text()); found != nil {
			s.grpc, s.http = found[1], "http://"+found[2]
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return s
		}
	}
	t.Fatal("the server does not serve")
	return nil
}

// The server speaks TLS and knows one token, of an operator.
func serveWithToken(t *testing.T, program string, db *pgtest.DB, token string) *server {
	t.Helper()
	authority := testca.New(t)
	cert, key := authority.Files(authority.Server())
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(
		tokens, fmt.Appendf(nil, "operator nightly %x\n", sha256.Sum256([]byte(token))), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	s := serve(t, program, db, "--tls-cert", cert, "--tls-key", key, "--token-file", tokens)
	s.ca, s.http = authority.File(), strings.Replace(s.http, "http:", "https:", 1)
	return s
}

func dial(t *testing.T, s *server) cleanupd.Client {
	t.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return cleanupd.NewClient(conn)
}

func (s *server) stop(signal syscall.Signal) {
	_ = s.cmd.Process.Signal(signal)
	_ = s.cmd.Wait()
}

type client struct {
	t     *testing.T
	ended chan error

	mu   sync.Mutex
	text bytes.Buffer // its output
}

func start(t *testing.T, folder, line string, env ...string) *client {
	t.Helper()
	c := &client{t: t, ended: make(chan error, 1)}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = folder, append(os.Environ(), env...), c, c
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it starts programs itself
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		c.ended <- cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	})
	return c
}

func (c *client) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *client) printed() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// until waits until the client has printed something; returns what the pattern captures.
func (c *client) until(pattern string) string {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(c.printed()); found != nil {
			return found[len(found)-1]
		}
	}
	c.t.Fatalf("it never printed %q:\n%s", pattern, c.printed())
	return ""
}

// Whether the client succeeds, and what it printed.
func (c *client) ends(succeeds bool, patterns ...string) {
	c.t.Helper()
	var err error
	select {
	case err = <-c.ended:
	case <-time.After(2 * time.Minute):
		c.t.Fatalf("it does not end:\n%s", c.printed())
	}
	if failed := (*exec.ExitError)(nil); (err != nil && (!errors.As(
		err, &failed,
	) || failed.ExitCode() < 1 || failed.ExitCode() > 2)) ||
		(err == nil) != succeeds {
		c.t.Errorf("it ended with %v", err)
	}
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(c.printed()) {
			c.t.Errorf("it did not print %q", p)
		}
	}
	if c.t.Failed() {
		c.t.Log(c.printed())
	}
}
