package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// tokens is a file of the tokens ROLE-secret, one for each role.
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

// as returns a client of a replica, and a context in which it has a role.
func (r *replica) as(t *testing.T, role string) (cleanupv1.CleanupServiceClient, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return cleanupv1.NewCleanupServiceClient(conn), metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+role+"-secret")
}

// peakMemory is the most memory that a process has had, in bytes.
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

// withheld is a request of gRPC that declares almost 1 MiB, of which the last byte never comes.
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

// message is such a request as far as it comes.
var message = func() string {
	const size = 1<<20 - 1024
	begin := make([]byte, 5+size-1)
	binary.BigEndian.PutUint32(begin[1:], size)
	return string(begin)
}()

// Two thousand streams and connections of nobody in particular, or of a viewer, cost little memory, and leave the server to
// those who show who they are.
func TestFlood(t *testing.T) {
	t.Parallel()
	for who, authorization := range map[string]string{"strangers": "", "viewer": "Bearer viewer-secret"} {
		t.Run(who, func(t *testing.T) {
			db := pgtest.Campaign(t)
			r := serve(t, "--database-url", db.URL(), "--token-file", tokens(t))
			before := peakMemory(t, r.cmd.Process.Pid)
			admin, ctx := r.as(t, "admin")
			defer r.flood(t, authorization)()
			var took []time.Duration
			for range 50 {
				begun := time.Now()
				_, err := admin.GetOptions(ctx, &cleanupv1.GetOptionsRequest{}, grpc.WaitForReady(true))
				if took = append(took, time.Since(begun)); err != nil { // before it is authenticated, its connection may have to give way, too
					t.Log(err)
					took[len(took)-1] = time.Hour
				}
				<-time.After(50 * time.Millisecond)
			}
			slices.Sort(took)
			after := peakMemory(t, r.cmd.Process.Pid)
			t.Logf("%d MiB before, %d MiB at most; an admin's call took %s, %s at most", before>>20, after>>20, took[len(took)/2], took[len(took)-1])
			if after > 200<<20 {
				t.Errorf("%d MiB", after>>20)
			}
			if took[len(took)/2] > time.Second {
				t.Errorf("an admin's call took %s", took[len(took)/2])
			}
		})
	}
}

// flood begins 2,000 requests that do not end: over one connection and over many, until calm is called.
func (r *replica) flood(t *testing.T, authorization string) (calm func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	over2 := &http.Transport{Protocols: &http.Protocols{}}
	over2.Protocols.SetUnencryptedHTTP2(true)
	call := func(method string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.grpc+method, withheld{strings.NewReader(message), ctx})
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
	for range 400 {
		for _, method := range []string{cleanupv1.CleanupService_GetOptions_FullMethodName, cleanupv1.CleanupService_RunCleanup_FullMethodName, healthv1.Health_Check_FullMethodName} {
			wg.Go(func() { call(method) })
		}
		wg.Go(func() { connect(r.grpc, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") })
		wg.Go(func() {
			connect(strings.TrimPrefix(r.http, "http://"), "PATCH /v1/options HTTP/1.1\r\nHost: localhost\r\nAuthorization: "+authorization+"\r\nContent-Length: 1000000\r\n\r\n"+message[:999_999])
		})
	}
	return func() {
		stop()
		wg.Wait()
		over2.CloseIdleConnections()
	}
}
