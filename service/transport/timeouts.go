package transport

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/cleanupd/cleanupd/service/access"
)

// Timeouts limit how long a client may take; 0 means the default.
type Timeouts struct {
	Headers time.Duration // for the headers, or for a whole request that needs no credentials; default 10 seconds
	Body    time.Duration // to send a whole request; default 30 seconds
	Stall   time.Duration // to read a message of a stream; default 5 minutes
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{cmp.Or(t.Headers, 10*time.Second), cmp.Or(t.Body, 30*time.Second), cmp.Or(t.Stall, 5*time.Minute)}
}

type abortKey struct{}

// makeAbortable lets abortLate cancel the call while its request is being read.
func makeAbortable(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cut := context.WithCancel(ctx)
	return context.WithValue(ctx, abortKey{}, cut), nil
}

// abortLate cancels the call if its request takes too long to arrive. A request that needs no credentials is as
// small as headers, so it has the timeout of headers.
func (t Timeouts) abortLate(ctx context.Context, method string) *time.Timer {
	cut, ok := ctx.Value(abortKey{}).(context.CancelFunc)
	if !ok { // a call of the gateway, which has the whole request already
		cut = func() {}
	}
	if rules[method].role == access.Nobody {
		return time.AfterFunc(t.Headers, cut)
	}
	return time.AfterFunc(t.Body, cut)
}

// stallStream records since when a message has been waiting to be sent.
type stallStream struct {
	grpc.ServerStream
	timeout      time.Duration
	waitingSince atomic.Int64 // Unix time in nanoseconds; 0 while none waits
}

func (t Timeouts) stream(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return (&stallStream{ServerStream: stream, timeout: t.Stall}).serve(srv, handler)
}

func (s *stallStream) SendMsg(m any) error {
	s.waitingSince.Store(time.Now().UnixNano())
	defer s.waitingSince.Store(0)
	return s.ServerStream.SendMsg(m)
}

// serve runs a handler until it returns, or until a message has waited for too long. In that case the waiting send
// ends with the stream. The client still receives the messages in flight, and then the error.
func (s *stallStream) serve(srv any, handler grpc.StreamHandler) error {
	done := make(chan error, 1)
	go func() { done <- handler(srv, s) }()
	look := time.NewTicker(s.timeout / 5)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-look.C:
			if since := s.waitingSince.Load(); since != 0 && time.Since(time.Unix(0, since)) > s.timeout {
				return status.Errorf(codes.Unavailable, "the stream was not read for %s: go on with a new one",
					s.timeout)
			}
		}
	}
}

// handler limits how long each write may wait for the client. http.Server.WriteTimeout would limit the whole
// stream.
func (t Timeouts) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &deadlineWriter{w, http.NewResponseController(w), t.Stall}
		next.ServeHTTP(out, r)
		out.setDeadline() // the end of the response is written later
	})
}

type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (w *deadlineWriter) setDeadline() { _ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) }

// clearDeadline is needed because over HTTP/2 the deadline would also end a stream that writes nothing for a while.
func (w *deadlineWriter) clearDeadline() { _ = w.control.SetWriteDeadline(time.Time{}) }

// Unwrap and FlushError are for http.ResponseController.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineWriter) Write(p []byte) (int, error) {
	w.setDeadline()
	defer w.clearDeadline()
	return w.ResponseWriter.Write(p)
}

func (w *deadlineWriter) FlushError() error {
	w.setDeadline()
	defer w.clearDeadline()
	return w.control.Flush()
}
