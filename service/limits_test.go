package service_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/internal/testca"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
)

func (s *server) well(t *testing.T) {
	t.Helper()
	conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := cleanupd.NewClient(conn).
		GetSchedule(t.Context(), &cleanupv1.GetScheduleRequest{}); err != nil {
		t.Errorf("another connection: %v", err)
	}
	s.schedule(t)
	if got := s.call(t, "GET", "/v1/schedule", ""); got.code != 200 {
		t.Errorf("REST: %d %s", got.code, got.body)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	large := strings.Repeat("x", 2<<20)
	_, err := s.ListRuns(t.Context(), &cleanupv1.ListRunsRequest{PageToken: large})
	wantCode(t, err, codes.ResourceExhausted)
	s.well(t)
	if _, err = s.GetSchedule(
		metadata.AppendToOutgoingContext(t.Context(), "x", large[:128<<10]), &cleanupv1.GetScheduleRequest{},
	); err == nil {
		t.Error("a call with headers of 128 KiB went through")
	}
	s.well(t)
	if got := s.call(t, "PUT", "/v1/schedule", `{"cron": "`+large[:1<<20]+`"}`); got.code != 400 {
		t.Errorf("a body of more than 1 MiB: %d %s", got.code, got.body)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/schedule", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X", large[:128<<10])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("headers of 128 KiB: %s", resp.Status)
	}
	s.well(t)
}

// A caller's calls that wait, here for a lock in the database, are counted over gRPC and REST together.
func TestTooManyCalls(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	s := serveAs(t, database(t), true, nil,
		transport.Config{Authenticator: &access.Authenticator{}, TurnTimeout: time.Hour})
	tx := s.db.Hold("LOCK TABLE cleanupd.schedule IN ACCESS EXCLUSIVE MODE")
	const more = 10
	rejected, served := make(chan string, transport.MaxCalls+more), make(chan struct{}, transport.MaxCalls+more)
	overGRPC := func() (codes.Code, string) {
		_, err := s.GetSchedule(t.Context(), &cleanupv1.GetScheduleRequest{})
		return status.Code(err), status.Convert(err).Message()
	}
	overREST := func() (codes.Code, string) {
		resp, err := http.Get(s.url + "/v1/schedule")
		if err != nil {
			return codes.Unavailable, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			return codes.Unavailable, err.Error()
		case resp.StatusCode == http.StatusOK:
			return codes.OK, ""
		case resp.StatusCode == http.StatusTooManyRequests:
			return codes.ResourceExhausted, string(body)
		}
		return codes.Unknown, string(body)
	}
	var wg sync.WaitGroup
	for i := range transport.MaxCalls + more {
		call := overGRPC
		if i%2 == 1 {
			call = overREST
		}
		wg.Go(func() {
			if code, text := call(); code == codes.OK {
				served <- struct{}{}
			} else {
				rejected <- code.String() + ": " + text
			}
		})
	}
	for range more {
		text := <-rejected
		if !strings.HasPrefix(text, "ResourceExhausted: ") ||
			!strings.Contains(text, "127.0.0.1 has 100 calls in progress") {
			t.Error(text)
		}
	}
	if _, err := healthv1.NewHealthClient(s.conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	if got := s.call(t, "GET", "/metrics", ""); got.code != 200 {
		t.Errorf("/metrics: %d", got.code)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if len(served) != transport.MaxCalls || len(rejected) != 0 {
		t.Errorf("%d calls were served", len(served))
	}
	s.well(t)
}

func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	id := s.queued(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answers := make(chan error, transport.MaxStreams+1)
	for range transport.MaxStreams + 1 {
		stream, err := s.WatchRun(ctx, &cleanupv1.WatchRunRequest{RunId: id})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := stream.Recv()
			answers <- err
		}()
	}
	wantCode(t, <-answers, codes.ResourceExhausted)
	if got := s.call(t, "GET", "/v1/runs/"+id+"/events", ""); got.code != 429 ||
		!strings.Contains(got.body, "streams in progress") {
		t.Errorf("REST: %d %s", got.code, got.body)
	}
	s.well(t)
	leave()
	for range transport.MaxStreams {
		// A busy machine may not have read the run for each of them by then.
		if err := <-answers; status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
			t.Errorf("a stream ended with %v, want Canceled", err)
		}
	}
}

// Clients that watch the health of the server are not authenticated, but counted.
func TestTooManyHealthStreams(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	refused := make(chan error)
	for range transport.MaxChecks + 1 {
		stream, err := healthv1.NewHealthClient(s.conn).Watch(ctx, &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				if _, err := stream.Recv(); err != nil {
					select {
					case refused <- err:
					case <-ctx.Done():
					}
					return
				}
			}
		}()
	}
	wantCode(t, <-refused, codes.ResourceExhausted)
	s.well(t)
}

// The status of a request with many mistakes is small enough for clients.
func TestManyMistakes(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	s := serve(t, database(t), true)
	long := strings.Repeat("x", 100_000)
	for _, r := range []*cleanupv1.RunCleanupRequest{
		{Tasks: slices.Repeat([]string{""}, 300_000)},
		{Tasks: slices.Repeat([]string{"deliveries"}, 100)},
		{Tasks: slices.Repeat([]string{long}, 5)},
		{SkipTasks: slices.Repeat([]string{"unknown"}, 20)},
	} {
		stream, err := s.RunCleanup(t.Context(), r)
		if err == nil {
			_, err = stream.Recv()
		}
		if wantCode(t, err, codes.InvalidArgument); len(err.Error()) > 8<<10 {
			t.Errorf("%d bytes: %.1000s", len(err.Error()), err)
		}
	}
	s.well(t)
}

// raw passes on what is sent and received.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (raw) Unmarshal([]byte, any) error { return nil }

// crammed yields messages on the wire of up to size bytes, in each of which one field, of which path is the name, is as
// long as possible, or is repeated as often as possible.
func crammed(
	of protoreflect.MessageDescriptor, size, depth int, yield func(path string, wire []byte),
) {
	for i := range of.Fields().Len() {
		f := of.Fields().Get(i)
		path := string(f.Name())
		value := func(v string) []byte {
			return protowire.AppendString(protowire.AppendTag(nil, f.Number(), protowire.BytesType), v)
		}
		repeated := func(v string) { yield(path+" repeated", bytes.Repeat(value(v), size/len(value(v)))) }
		switch {
		case f.Kind() == protoreflect.MessageKind:
			repeated("") // of a field that is no list, the values are merged
			if depth > 0 {
				crammed(f.Message(), size-10, depth-1, func(in string, wire []byte) { yield(path+"."+in, value(string(wire))) })
			}
		case f.Kind() == protoreflect.StringKind:
			yield(path+" of quotes", value(strings.Repeat(`"`, size))) // which double when they are quoted
			if f.IsList() {
				repeated("")
				repeated("x")
			}
		case f.IsList():
			yield(path+" of zeros", value(string(make([]byte, size))))
		}
	}
}

// What a request takes is in proportion to its size, whatever is in it: a pod has 256 MiB, and a caller may send 4 MiB
// at once.
func TestMemoryOfRequests(t *testing.T) {
	suite.Only(t, suite.Long)
	const size, mebibyte = 256 << 10, 1 << 20
	s, _, _ := formsServer(t)
	caller := 0 // each has its own limits
	for method := range rpcs {
		name := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
		crammed(method.Input(), size, 4, func(path string, wire []byte) {
			caller++
			conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
					from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(caller/250), byte(1+caller%250))}
					return (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", address)
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ctx, leave := context.WithTimeout(t.Context(), time.Second) // some streams do not end
			defer leave()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name, grpc.ForceCodec(raw{}))
			if err == nil {
				err = errors.Join(stream.SendMsg(wire), stream.CloseSend(), stream.RecvMsg(nil))
			}
			runtime.ReadMemStats(&after)
			most := uint64(48) // most of it is soon free again
			if path == "user_id of quotes" {
				most += 64 // it is hashed by Argon2id, one at a time
			}
			if took := (after.TotalAlloc - before.TotalAlloc) / mebibyte; took > most {
				t.Errorf("%s with %d bytes of %s took %d MiB of memory, want at most %d: %.200v", method.Name(), len(wire), path,
					took, most, err)
			}
		})
	}
	s.well(t)
}

// Each of the objects is a mistake.
func TestTooManyMessages(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	filters := make([]*cleanupv1.Filter, 2_000)
	for i := range filters {
		filters[i] = &cleanupv1.Filter{}
	}
	_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: &cleanupv1.Policy{Filters: filters}})
	if wantCode(t, err, codes.InvalidArgument); !strings.Contains(err.Error(), "more than 1000 messages") {
		t.Error(err)
	}
	body := `{"description":"a \" { { {","filters":[{}` + strings.Repeat(",{}", 2_000) + "]}"
	if got := s.call(t, "PUT", "/v1/policies/p", body); got.code != http.StatusBadRequest ||
		!strings.Contains(got.body, "more than 1000 objects") {
		t.Errorf("REST: %d %s, want 400 and the limit", got.code, got.body)
	}
}

// No replica claims the run.
func (s *server) queued(t *testing.T) (id string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if _, err := s.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{}); err != nil {
		t.Fatal(err)
	}
	s.db.Until("SELECT count(*) FROM cleanupd.run")
	return s.db.Strings("SELECT id::text FROM cleanupd.run")[0]
}

// A client that does not complete its request is cut off.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	config := transport.Config{
		Authenticator: &access.Authenticator{},
		Timeouts:      transport.Timeouts{Headers: 300 * time.Millisecond, Body: 300 * time.Millisecond},
	}
	t.Run("cut off", func(t *testing.T) {
		s := serveAs(t, database(t), true, nil, config)
		rest := strings.TrimPrefix(s.url, "http://")
		for _, c := range []struct{ address, begin string }{
			{rest, ""},
			{rest, "GET /v1/schedule HTTP/1.1\r\nHost: localhost\r\nX-Slow: "},
			{
				rest,
				"PUT /v1/schedule HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
					"100\r\n\r\n{",
			},
			{
				rest,
				"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: " +
					"chunked\r\n\r\n1\r\n{\r\n",
			},
			{s.conn.Target(), ""},
			{s.conn.Target(), "PRI * HTTP/2.0\r\n"},
		} {
			conn, err := net.Dial("tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, c.begin); err != nil {
				t.Fatal(err)
			}
			s.well(t)
			said, _ := io.ReadAll(conn) // until the server closes the connection
			_ = conn.Close()
			if strings.Contains(string(said), "200 OK") {
				t.Errorf("%q is answered with %s", c.begin, said)
			}
		}
		for _, method := range []string{
			cleanupv1.CleanupService_GetSchedule_FullMethodName, cleanupv1.CleanupService_RunCleanup_FullMethodName,
		} {
			stream, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				method)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(&cleanupv1.Schedule{}); status.Code(err) != codes.Canceled {
				t.Errorf("%s without a request: %v", method, err)
			}
		}
		if n := s.db.Int("SELECT count(*) FROM cleanupd.run"); n != 0 {
			t.Errorf("%d runs came of it", n)
		}
		s.well(t)
	})
	t.Run("an answer may take longer", func(t *testing.T) {
		s := serveAs(t, database(t), false, nil, config)
		release, released := hold(t, s.db), make(chan struct{})
		time.AfterFunc(time.Second, func() { release(); close(released) })
		if got := s.call(t, "POST", "/v1/runs", `{"tasks":["import-rejects"]}`); got.code != 200 ||
			!strings.Contains(got.body, "runFinished") {
			t.Errorf("%d %s", got.code, got.body)
		}
		<-released
	})
}

// A stream that its client does not read ends after a while; others on the same connection are not affected.
func TestStalledReaders(t *testing.T) {
	t.Parallel()
	log, end := io.Pipe()
	defer func() { _ = end.Close() }()
	s := serveAs(t, database(t), true, nil, transport.Config{
		Authenticator: &access.Authenticator{},
		Timeouts:      transport.Timeouts{Stall: 3 * time.Second},
		Log:           slog.New(slog.NewTextHandler(end, nil)),
	})
	ended := make(chan bool, 3)
	go func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if strings.Contains(lines.Text(), "rpc=CleanupService/WatchRun") {
				ended <- true
			}
		}
	}()
	id := s.queued(t)
	s.db.Do(
		`INSERT INTO cleanupd.event (run_id, sequence, body)
			SELECT $1::uuid, i, jsonb_build_object('Kind', 'log', 'Level', 'INFO', 'Message', repeat('x', 10000))
			FROM generate_series(1, 3000) i`,
		id,
	)
	s.db.Do("UPDATE cleanupd.run SET last_sequence = 3000")
	stalled, err := s.WatchRun(t.Context(), &cleanupv1.WatchRunRequest{RunId: id})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /v1/runs/"+id+"/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	reading, err := s.WatchRun(ctx, &cleanupv1.WatchRunRequest{RunId: id}) // on the same connection
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if m, err := reading.Recv(); err != nil || m.GetEvent().GetSequence() != int64(i+1) {
			t.Fatalf("event %d: %v, %v", i+1, m.GetEvent().GetSequence(), err)
		}
	}
	leave()
	for n := range 3 {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%d of 3 streams have ended", n)
		}
	}
	n := 0
	for err = nil; err == nil; n++ {
		_, err = stalled.Recv()
	}
	// A client of grpc-go takes as much as 16 MiB before anybody reads it.
	if wantCode(t, err, codes.Unavailable); n > 2500 || !strings.Contains(err.Error(), "was not read") {
		t.Errorf("%d events were kept for a client that did not read: %v", n, err)
	}
	said, _ := io.ReadAll(conn)
	if len(said) >= 3000*10000 || strings.HasSuffix(string(said), "0\r\n\r\n") {
		t.Errorf("REST: all of %d bytes", len(said))
	}
	s.well(t)
}

// A stream without events for a while remains open, over HTTP/2 as well, where a deadline is a timer.
func TestQuietStream(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	cert, key := ca.Files(ca.Server())
	own, err := access.ServerTLS(slog.New(slog.DiscardHandler), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	db := database(t)
	id := serve(t, db, true).queued(t)
	s := serveAs(t, db, true, nil,
		transport.Config{Authenticator: &access.Authenticator{}, TLS: own, Timeouts: transport.Timeouts{Stall: time.Second}})
	event := func(sequence int) {
		db.Do(`INSERT INTO cleanupd.event (run_id, sequence, body) VALUES ($1::uuid, $2, '{"Kind": "log"}')`, id,
			sequence)
		db.Do("UPDATE cleanupd.run SET last_sequence = $1", sequence)
	}
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: http2}
		defer transport.CloseIdleConnections()
		db.Do("DELETE FROM cleanupd.event")
		event(1)
		r, err := (&http.Client{Transport: transport}).Get(s.url + "/v1/runs/" + id + "/events")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(r.Body)
		if !lines.Scan() || r.ProtoAtLeast(2, 0) != http2 {
			t.Fatalf("%s: %v", r.Proto, lines.Err())
		}
		time.Sleep(2 * time.Second)
		event(2)
		if !lines.Scan() || !strings.Contains(lines.Text(), `"sequence":"2"`) {
			t.Errorf("%s: %s %v", r.Proto, lines.Text(), lines.Err())
		}
		_ = r.Body.Close()
	}
}
