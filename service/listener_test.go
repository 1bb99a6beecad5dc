package service_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/testca"
	"github.com/cleanupd/cleanupd/service/transport"
)

// Nothing is read of the request of a caller who is refused.
func TestRefusedBeforeTheRequest(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	s := guarded(t, ca, newIssuer(t))
	conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(credentials.NewTLS(shown{}.tls(ca))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range calls {
		for token, want := range map[string]codes.Code{
			"secret-nobody": codes.Unauthenticated,
			"secret-viewer": codes.PermissionDenied,
		} {
			if want == codes.PermissionDenied && !strings.HasPrefix(c.rpc, "UserDataService") {
				continue
			}
			stream, err := conn.NewStream(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token),
				&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/cleanup.v1."+c.rpc)
			if err != nil {
				t.Fatal(err)
			}
			wantCode(t, stream.RecvMsg(&cleanupv1.Schedule{}), want)
		}
	}
}

// Strangers give way to those who come after them; callers do not.
func TestTooManyStrangers(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	s.schedule(t)
	known, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = known.Close() }()
	answers := bufio.NewReader(known)
	ask := func() {
		t.Helper()
		if _, err := io.WriteString(known, "GET /v1/schedule HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Error(answer.Status)
		}
	}
	ask()
	closed := make(chan struct{}, 2*transport.MaxOfNetwork)
	for i := range transport.MaxOfNetwork + 10 {
		conn, err := net.Dial("tcp", []string{s.conn.Target(), strings.TrimPrefix(s.url, "http://")}[i%2])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			closed <- struct{}{}
		}()
	}
	for range 10 {
		<-closed
	}
	s.well(t)
	ask()
}
