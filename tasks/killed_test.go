package tasks_test

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

var kills = flag.Int("kills", 3, "how many random databases TestKilledReplicas makes")

// A random database whose replica is killed, or frozen, at some batch, and whose run another replica finishes, is what
// the model says, too; and a frozen replica does no harm when it wakes up.
func TestKilledReplicas(t *testing.T) {
	t.Parallel()
	pgtest.Empty(t) // skips where there is no PostgreSQL
	program := filepath.Join(t.TempDir(), "cleanupd")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/cleanupd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for i := range *kills {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			// The cutoffs of the dates' moment are not those of the run, which begins a little later.
			m := randomDatabase(t, db, seed, time.Now().Add(30*time.Minute).Truncate(time.Microsecond))
			original := m.keys()
			var replicas [2]*process
			for i := range replicas {
				replicas[i] = startReplica(t, program, db.URL())
			}
			said, err := exec.Command(program, "run", "--detach", "--server", replicas[0].address).CombinedOutput()
			began := regexp.MustCompile(`Run (\S+) began`).FindSubmatch(said)
			if err != nil || began == nil {
				t.Fatalf("%v: %s", err, said)
			}
			// Not before some batch, and not after the end.
			batch := 1 + rand.New(rand.NewPCG(seed, 3)).Int64N(60)
			for db.Int("SELECT CASE WHEN state = 'RUNNING' THEN (SELECT sum(batches) FROM cleanupd.task)::bigint ELSE 1000000 END FROM cleanupd.run") < batch {
			}
			holder := db.Strings("SELECT holder FROM cleanupd.run")[0]
			working := 0
			if strings.HasSuffix(holder, "/"+strconv.Itoa(replicas[1].cmd.Process.Pid)) {
				working = 1
			}
			frozen := seed%2 == 0
			if err := replicas[working].cmd.Process.Signal(map[bool]os.Signal{true: syscall.SIGSTOP, false: syscall.SIGKILL}[frozen]); err != nil {
				t.Fatal(err)
			}
			if said, err := exec.Command(program, "runs", "watch", string(began[1]), "--server", replicas[1-working].address).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			if err := db.QueryRow(t.Context(), "SELECT reference_time FROM cleanupd.run").Scan(&m.now); err != nil {
				t.Fatal(err)
			}
			m.now = m.now.UTC()
			m.run()
			want := m.contents(original)
			compare(t, "resumed", contents(t, db, m, original), want)
			if frozen {
				if err := replicas[working].cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				replicas[working].waitFor(t, "left the run|the run has ended") // it may have been through just before
				compare(t, "fenced", contents(t, db, m, original), want)
			}
			t.Logf("killed at batch %d of %d", batch, db.Int("SELECT sum(batches)::bigint FROM cleanupd.task"))
			if gaps := db.Int("SELECT max(sequence) - count(*) FROM cleanupd.event"); gaps != 0 {
				t.Errorf("%d events are missing", gaps)
			}
		})
	}
}

// process is a replica in a process of its own.
type process struct {
	cmd     *exec.Cmd
	address string // of gRPC
	log     chan string
}

// waitFor waits until the process has logged something, and returns what was captured of it last.
func (p *process) waitFor(t *testing.T, pattern string) string {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	deadline := time.After(time.Minute)
	for {
		select {
		case line, ok := <-p.log:
			if found := wanted.FindStringSubmatch(line); found != nil {
				return found[len(found)-1]
			}
			if !ok {
				t.Fatalf("the process ended without logging %q", pattern)
			}
		case <-deadline:
			t.Fatalf("the process does not log %q", pattern)
		}
	}
}

func startReplica(t *testing.T, program, url string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program, "serve", "--database-url", url, "--lease", "1s", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	p.log = make(chan string, 1000)
	go func() {
		defer close(p.log)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			p.log <- scanner.Text()
		}
	}()
	p.address = p.waitFor(t, `grpc=(\S+)`)
	return p
}
