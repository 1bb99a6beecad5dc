package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// The tokens are ROLE-secret.
func tokens(t *testing.T) string {
	t.Helper()
	text := ""
	for _, role := range []string{"viewer", "operator", "admin"} {
		text += fmt.Sprintf("%s the-%s %x\n", role, role, sha256.Sum256([]byte(role+"-secret")))
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (r *replica) as(t *testing.T, role string) (api.Client, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return api.NewClient(conn), metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+role+"-secret")
}

// In bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	kib, err := strconv.ParseInt(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// A gRPC request that declares almost 1 MiB, but never sends the last byte.
type withheld struct {
	io.Reader
	ctx context.Context
}

func (w withheld) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err == io.EOF {
		<-w.ctx.Done()
	}
	return n, err
}

// The part of such a request that is sent.
var message = func() string {
	const size = 1<<20 - 1024
	begin := make([]byte, 5+size-1)
	binary.BigEndian.PutUint32(begin[1:], size)
	return string(begin)
}()

// How long an admin waits during a flood: far longer than a call takes on a busy machine.
const patience = 10 * time.Second

// Thousands of streams and connections without credentials, or of a viewer, cost little memory, and do not keep other
// authenticated callers from the server.
func TestFlood(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "cleanupd") // as it is deployed: the race detector takes memory of its own
	if !suite.Flood.Requested() {
		program = os.Args[0]
	} else if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for who, authorization := range map[string]string{"strangers": "", "viewer": "Bearer viewer-secret"} {
		t.Run(who, func(t *testing.T) {
			db := campaign(t)
			r := startProgram(t, program, "--database-url", db.URL(), "--token-file", tokens(t))
			before := peakMemory(t, r.cmd.Process.Pid)
			admin, ctx := r.as(t, "admin")
			defer r.flood(t, authorization)()
			var took []time.Duration
			calls := suite.Size(suite.Flood, 10, 50)
			for range calls {
				begun := time.Now()
				limited, cancel := context.WithTimeout(ctx, patience)
				_, err := admin.GetOptions(limited, &cleanupv1.GetOptionsRequest{}, grpc.WaitForReady(true))
				cancel()
				if err != nil { // before it is authenticated, its connection may have to give way, too
					t.Log(err)
				} else {
					took = append(took, time.Since(begun))
				}
				<-time.After(50 * time.Millisecond)
			}
			slices.Sort(took)
			if len(took) <= calls/2 {
				t.Fatalf("%d of an admin's %d calls succeeded", len(took), calls)
			}
			after := peakMemory(t, r.cmd.Process.Pid)
			t.Logf("%d MiB before, %d MiB at most; an admin's call took %s, %s at most", before>>20, after>>20,
				took[len(took)/2], took[len(took)-1])
			if after > 200<<20 {
				t.Errorf("%d MiB", after>>20)
			}
		})
	}
}

// 2,000 requests (200 outside of its suite) that do not end, over one connection and over many, until calm is called.
func (r *replica) flood(t *testing.T, authorization string) (calm func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	over2 := &http.Transport{Protocols: &http.Protocols{}}
	over2.Protocols.SetUnencryptedHTTP2(true)
	call := func(method string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.grpc+method,
			withheld{strings.NewReader(message), ctx})
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = http.Header{"Content-Type": {"application/grpc"}, "Authorization": {authorization}}
		if resp, err := over2.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	connect := func(address, begin string) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_, _ = io.WriteString(conn, begin)
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	var wg sync.WaitGroup
	for range suite.Size(suite.Flood, 40, 400) {
		for _, method := range []string{
			cleanupv1.CleanupService_GetOptions_FullMethodName, cleanupv1.CleanupService_RunCleanup_FullMethodName,
			healthv1.Health_Check_FullMethodName,
		} {
			wg.Go(func() { call(method) })
		}
		wg.Go(func() { connect(r.grpc, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") })
		wg.Go(func() {
			connect(
				strings.TrimPrefix(r.http, "http://"),
				"PATCH /v1/options HTTP/1.1\r\nHost: localhost\r\nAuthorization: "+authorization+"\r\nContent-Length: "+
					"1000000\r\n\r\n"+message[:999_999],
			)
		})
	}
	return func() {
		stop()
		wg.Wait()
		over2.CloseIdleConnections()
	}
}

// A hundred callers who list runs all the time cost a run neither its lease nor much of its speed.
func TestFloodOfReaders(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Flood)
	took := map[bool]time.Duration{}
	for _, flooded := range []bool{false, true} {
		db := campaign(t)
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := campaigndb.Fill(t.Context(), conn.Conn(), 200_000, 1, time.Now()); err != nil {
			t.Fatal(err)
		}
		conn.Release()
		r := startServer(t, "--database-url", db.URL(), "--token-file", tokens(t), "--lease", "2s")
		db.Do(
			`INSERT INTO cleanupd.run (id, slot, state, dry_run, continue_on_error, requested_by, create_time, end_time, error)
				SELECT gen_random_uuid(), 0, 'FAILED', false, false, 'x', '2000-01-01', '2000-01-01', repeat('x', 200)
				FROM generate_series(1, 1000);
			INSERT INTO cleanupd.task (run_id, position, name, kind, chosen, state)
				SELECT id, i, 'task-' || i, 'BUILT_IN', true, 'SUCCEEDED' FROM cleanupd.run, generate_series(1, 26) i;
			INSERT INTO cleanupd.space (run_id, task, relation, rows_deleted, table_bytes_before, index_bytes_before,
				table_bytes_after, index_bytes_after) SELECT run_id, name, 'table-' || position, 1, 2, 2, 1, 1 FROM cleanupd.task`,
		)
		viewer, viewing := r.as(t, "viewer")
		admin, ctx := r.as(t, "admin")
		viewing, calm := context.WithCancel(viewing)
		var wg sync.WaitGroup
		var lists atomic.Int64
		if flooded {
			for range 100 {
				wg.Go(func() {
					for viewing.Err() == nil {
						if _, err := viewer.ListRuns(viewing, &cleanupv1.ListRunsRequest{PageSize: 1000}); err == nil {
							lists.Add(1)
						}
					}
				})
			}
		}
		stream, err := admin.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
		calm()
		wg.Wait()
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		took[flooded] = time.Duration(
			db.Int(
				"SELECT (extract(epoch FROM end_time - start_time) * 1000000)::bigint FROM cleanupd.run WHERE state "+
					"= 'SUCCEEDED'",
			),
		) * time.Microsecond
		t.Logf("the run took %s beside %d lists", took[flooded], lists.Load())
		if got := db.Strings(
			"SELECT concat_ws(' ', (SELECT count(DISTINCT generation) FROM cleanupd.event WHERE run_id = id), " +
				"failed_attempts) FROM cleanupd.run WHERE state = 'SUCCEEDED'",
		); got[0] != "1 0" {
			t.Errorf("epochs and failed attempts: %s", got[0])
		}
	}
	t.Logf("%.2f times", float64(took[true])/float64(took[false]))
}

// A slow read is cancelled after five seconds, without slowing down a run or the health checks.
func TestSlowReads(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := campaign(t)
	r := startServer(t, "--database-url", db.URL(), "--token-file", tokens(t))
	tx := db.Hold("LOCK TABLE cleanupd.schedule IN ACCESS EXCLUSIVE MODE")
	defer func() { _ = tx.Rollback(context.Background()) }()
	viewer, ctx := r.as(t, "viewer")
	begun := time.Now()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := viewer.GetSchedule(ctx, &cleanupv1.GetScheduleRequest{})
			if code := status.Code(err); code != codes.Unavailable && code != codes.ResourceExhausted {
				t.Error(err)
			}
		})
	}
	db.Until("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
	if code, out, errs := r.run(t, "run --token operator-secret --task audit-trail"); code != 0 {
		t.Errorf("a run: %d %s %s", code, out, errs)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(r.http + "/readyz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()
	wg.Wait()
	if took := time.Since(begun); took > 25*time.Second {
		t.Errorf("the reads took %s", took)
	}
}
