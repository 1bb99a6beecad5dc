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

// Timeouts limit how long a client may take. A field that is 0 has its default.
type Timeouts struct {
	Headers time.Duration // to send a request's headers, or a request that needs no credentials; 10 seconds
	Body    time.Duration // to send a whole request; 30 seconds
	Stall   time.Duration // to read a message of a stream; 5 minutes
}

// withDefaults returns the timeouts with the defaults in place of 0.
func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{cmp.Or(t.Headers, 10*time.Second), cmp.Or(t.Body, 30*time.Second), cmp.Or(t.Stall, 5*time.Minute)}
}

// cutter is the context key of the function that ends a call, whatever it waits for.
type cutter struct{}

// cuttable makes it possible to end a call while its request is read.
func cuttable(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cut := context.WithCancel(ctx)
	return context.WithValue(ctx, cutter{}, cut), nil
}

// await ends a call whose request does not arrive in time, unless the timer is stopped. The request of a call that
// needs no credentials is as small as headers are.
func (t Timeouts) await(ctx context.Context, method string) *time.Timer {
	cut, ok := ctx.Value(cutter{}).(context.CancelFunc)
	if !ok { // the gateway's, which has all of it
		cut = func() {}
	}
	if rules[method].role == access.Nobody {
		return time.AfterFunc(t.Headers, cut)
	}
	return time.AfterFunc(t.Body, cut)
}

// patientStream knows since when a message has been waiting to be sent.
type patientStream struct {
	grpc.ServerStream
	most  time.Duration
	since atomic.Int64 // in nanoseconds of the Unix time; 0: none waits
}

// stream ends a stream whose client does not read it.
func (t Timeouts) stream(
	srv any,
	stream grpc.ServerStream,
	_ *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	return (&patientStream{ServerStream: stream, most: t.Stall}).serve(srv, handler)
}

func (s *patientStream) SendMsg(m any) error {
	s.since.Store(time.Now().UnixNano())
	defer s.since.Store(0)
	return s.ServerStream.SendMsg(m)
}

// serve runs a handler until it returns, or a message has waited for too long. The waiting send then ends with the
// stream. The client still gets what is in flight, and then the error.
func (s *patientStream) serve(srv any, handler grpc.StreamHandler) error {
	done := make(chan error, 1)
	go func() { done <- handler(srv, s) }()
	look := time.NewTicker(s.most / 5)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-look.C:
			if since := s.since.Load(); since != 0 && time.Since(time.Unix(0, since)) > s.most {
				return status.Errorf(codes.Unavailable, "the stream was not read for %s: go on with a new one", s.most)
			}
		}
	}
}

// handler limits how long each write may wait for the client. (http.Server.WriteTimeout would limit a whole stream.)
func (t Timeouts) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &patientWriter{w, http.NewResponseController(w), t.Stall}
		next.ServeHTTP(out, r)
		out.wait() // for the end of the response, too
	})
}

type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	most    time.Duration
}

func (w *patientWriter) wait() { _ = w.control.SetWriteDeadline(time.Now().Add(w.most)) }

// taken removes the deadline, which over HTTP/2 would also end a stream that has nothing to write.
func (w *patientWriter) taken() { _ = w.control.SetWriteDeadline(time.Time{}) }

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) Write(p []byte) (int, error) {
	w.wait()
	defer w.taken()
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *patientWriter) FlushError() error {
	w.wait()
	defer w.taken()
	return w.control.Flush()
}
