package service_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

var (
	watchers = flag.Int("watchers", suite.Size(suite.Flood, 20, 100),
		"how many watch the run of TestWatchers, a fifth of them without reading")
	watchedRows   = flag.Int("watched-rows", suite.Size(suite.Flood, 1_000, 20_000), "how many rows TestWatchers cleans")
	watchedRounds = flag.Int("watched-rounds", 1, "how often TestWatchers does so, with watchers and without")
)

// Watchers neither slow a run down nor cost more queries, even if some of them do not read. Watchers that read see
// every event. The watchers are a separate process, so that their own work is not measured.
func TestWatchers(t *testing.T) {
	var with, without []time.Duration
	for range *watchedRounds {
		if suite.Flood.Requested() {
			without = append(without, cleaned(t, 0))
		}
		with = append(with, cleaned(t, *watchers))
	}
	if len(without) == 0 {
		return
	}
	slices.Sort(without)
	slices.Sort(with)
	n := *watchedRounds / 2
	t.Logf("median of %d: %s without watchers, %s with %d: %.3f times", *watchedRounds, without[n], with[n], *watchers,
		float64(with[n])/float64(without[n]))
}

// reads counts queries for events.
type reads struct{ n atomic.Int64 }

func (r *reads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(strings.Join(strings.Fields(q.SQL), " "), "FROM cleanupd.event WHERE run_id") {
		r.n.Add(1)
	}
	return ctx
}

func (*reads) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// cleaned executes a cleanup with a number of watchers, and returns how long it took.
func cleaned(t *testing.T, watchers int) (took time.Duration) {
	t.Run(fmt.Sprintf("%d watchers", watchers), func(t *testing.T) {
		db := database(t)
		fill(t, db)
		asked := &reads{}
		config := db.Config()
		config.ConnConfig.Tracer = asked
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		db.Pool = pool
		s := serve(t, db, true)
		id := s.queued(t)
		var before, after runtime.MemStats
		measure(&before)
		crowd := gather(t, s, id, watchers)
		db.Superuser("CHECKPOINT")
		asked.n.Store(0)
		cpu := processorTime()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.manager.Work(ctx) })
		defer func() { stop(); wg.Wait() }()
		db.Until("SELECT count(*) FROM cleanupd.run WHERE state = 'SUCCEEDED'")
		cpu = processorTime() - cpu
		events := int(db.Int("SELECT last_sequence FROM cleanupd.run"))
		took = time.Duration(db.Int(
			"SELECT (extract(epoch FROM end_time - start_time) * 1000000)::bigint FROM cleanupd.run",
		)) * time.Microsecond
		crowd.check(t, events)
		measure(&after)
		held := int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)
		t.Logf(
			"%s, %d events, read from the database %d times; %s of processor time here, %s in the watchers' process; "+
				"%d KiB more held, %d goroutines",
			took,
			events,
			asked.n.Load(),
			cpu,
			crowd.leave(t),
			held>>10,
			runtime.NumGoroutine(),
		)
		if n := int(asked.n.Load()); n > 2*events+100 {
			t.Errorf("the events were read %d times", n)
		}
		if n := db.Int(
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'",
		); n != 1 {
			t.Errorf("%d sessions listen", n)
		}
		if held > int64(watchers+100)<<18 {
			t.Errorf("%d MiB are held", held>>20)
		}
	})
	return took
}

func fill(t *testing.T, db *pgtest.DB) {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := campaigndb.Fill(t.Context(), conn.Conn(), *watchedRows, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func measure(m *runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(m)
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The process of the watchers.
type crowd struct {
	cmd   *exec.Cmd
	stdin io.Closer
	says  *bufio.Scanner
	size  int
}

// gather returns when the server serves all watchers.
func gather(t *testing.T, s *server, runID string, size int) *crowd {
	t.Helper()
	if size == 0 {
		return &crowd{}
	}
	c := &crowd{cmd: exec.Command(os.Args[0]), size: size}
	c.cmd.Env = append(os.Environ(),
		fmt.Sprintf("WATCH=%s %s %s %d", s.conn.Target(), strings.TrimPrefix(s.url, "http://"), runID, size))
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	stdout, outErr := c.cmd.StdoutPipe()
	if err := errors.Join(err, outErr); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdin, c.says = stdin, bufio.NewScanner(stdout)
	stacks := make([]byte, 64<<20)
	for n := 0; n < size; n = strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*Log).Watch(") {
		time.Sleep(50 * time.Millisecond)
	}
	return c
}

// check waits until all that read have reached the end, and checks what they saw.
func (c *crowd) check(t *testing.T, events int) {
	t.Helper()
	if c.size == 0 {
		return
	}
	c.says.Scan()
	if want := fmt.Sprintf("%d readers of %d events", c.size-c.size/5, events); c.says.Text() != want {
		t.Errorf("the watchers say %q, want %q", c.says.Text(), want)
	}
}

// leave ends the process; returns how much processor time it used.
func (c *crowd) leave(t *testing.T) time.Duration {
	if c.size == 0 {
		return 0
	}
	if err := errors.Join(c.stdin.Close(), c.cmd.Wait()); err != nil {
		t.Error(err)
	}
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

// The process: one of five watchers does not read its events, over gRPC or, for ten of them, over REST.
func watch(given string) error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil { // as if it were on another machine
		return err
	}
	var address, rest, runID string
	var size int
	if _, err := fmt.Sscan(given, &address, &rest, &runID, &size); err != nil {
		return err
	}
	var clients [8]cleanupd.Client
	for i := range clients {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		clients[i] = cleanupd.NewClient(conn)
	}
	var unread []net.Conn // kept, so that they are not garbage collected and closed
	seen := make(chan int64)
	readers := 0
	for i := range size {
		if i%5 == 0 && i < 50 {
			conn, err := net.Dial("tcp", rest)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(
				conn, "GET /v1/runs/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", runID,
			); err != nil {
				return err
			}
			unread = append(unread, conn)
			continue
		}
		stream, err := clients[i%len(clients)].WatchRun(context.Background(), &cleanupv1.WatchRunRequest{RunId: runID})
		if err != nil {
			return err
		}
		if i%5 == 0 {
			continue
		}
		readers++
		go func() {
			last := int64(0)
			for {
				m, err := stream.Recv()
				if err != nil {
					break
				}
				if m.GetEvent().GetSequence() != last+1 {
					break
				}
				last++
			}
			seen <- last
		}()
	}
	first := <-seen
	for range readers - 1 {
		if n := <-seen; n != first {
			return fmt.Errorf("one saw %d events, another %d", first, n)
		}
	}
	fmt.Printf("%d readers of %d events\n", readers, first)
	_, err := io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(unread)
	return err
}
