package service

import (
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

// How long a client may take to send a request's headers, to send the whole request, and to read from a stream. Tests
// shorten them.
var (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	stallTimeout  = 5 * time.Minute
)

// cutter is the context key of the function that ends a call, whatever it waits for.
type cutter struct{}

// cuttable makes it possible to end a call while its request is read.
func cuttable(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cut := context.WithCancel(ctx)
	return context.WithValue(ctx, cutter{}, cut), nil
}

// await ends a call whose request does not arrive in time, unless the timer is stopped. The request of a call that needs no
// credentials is as small as headers are.
func await(ctx context.Context, method string) *time.Timer {
	cut, ok := ctx.Value(cutter{}).(context.CancelFunc)
	if !ok { // the gateway's, which has all of it
		cut = func() {}
	}
	if rules[method].role == access.Nobody {
		return time.AfterFunc(headerTimeout, cut)
	}
	return time.AfterFunc(bodyTimeout, cut)
}

// errStalled ends a stream whose client has not read for too long. The client still gets what is in flight, and then this.
var errStalled = status.Error(codes.Unavailable, "the stream was not read for "+stallTimeout.String()+": go on with a new one")

// patientStream knows since when a message has been waiting to be sent.
type patientStream struct {
	grpc.ServerStream
	since atomic.Int64 // in nanoseconds of the Unix time; 0: none waits
}

func waiting(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return (&patientStream{ServerStream: stream}).serve(srv, handler)
}

func (s *patientStream) SendMsg(m any) error {
	s.since.Store(time.Now().UnixNano())
	defer s.since.Store(0)
	return s.ServerStream.SendMsg(m)
}

// serve runs a handler until it returns, or a message has waited for too long. The waiting send then ends with the stream.
func (s *patientStream) serve(srv any, handler grpc.StreamHandler) error {
	done := make(chan error, 1)
	go func() { done <- handler(srv, s) }()
	look := time.NewTicker(stallTimeout / 5)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-look.C:
			if since := s.since.Load(); since != 0 && time.Since(time.Unix(0, since)) > stallTimeout {
				return errStalled
			}
		}
	}
}

// withTimeouts limits how long each write may wait for the client. (http.Server.WriteTimeout would limit a whole stream.)
func withTimeouts(next http.Handler) http.Handler {
	most := stallTimeout
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &patientWriter{w, http.NewResponseController(w), most}
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
