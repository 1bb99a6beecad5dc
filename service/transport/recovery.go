package transport

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/internal/rescue"
)

// A call that panics ends with INTERNAL, and the stack is logged.
type recovery struct{ log *slog.Logger }

func (s recovery) call(name string, fn func() error) error {
	err := rescue.Call(fn)
	if panicked := (*rescue.Panic)(nil); errors.As(err, &panicked) {
		rescue.Log(s.log, name, err)
		return status.Error(codes.Internal, panicked.Error())
	}
	return err
}

// A method includes all that precedes its interceptors.
func (s recovery) method(name string, next grpc.MethodHandler) grpc.MethodHandler {
	return func(
		srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (resp any, err error) {
		err = s.call(shortName(name),
			func() (err error) { resp, err = next(srv, ctx, decode, interceptor); return err })
		return resp, err
	}
}

// stream is the outermost interceptor.
func (s recovery) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return s.call(shortName(info.FullMethod), func() error { return handler(srv, stream) })
}

// unaryStatus is the innermost interceptor: only here errors become statuses.
func (s recovery) unaryStatus(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (resp any, err error) {
	err = s.call(shortName(info.FullMethod), func() (err error) { resp, err = handler(ctx, req); return err })
	return resp, toStatus(ctx, err)
}

// streamStatus is the innermost interceptor, as unaryStatus.
func (s recovery) streamStatus(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return toStatus(stream.Context(), s.stream(srv, stream, info, handler))
}

// After a panic a response that has started is cut off.
func (s recovery) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &startedWriter{ResponseWriter: w}
		err := s.call(r.Method+" "+r.URL.Path, func() error { next.ServeHTTP(out, r); return nil })
		switch {
		case err == nil:
		case out.started:
			panic(http.ErrAbortHandler)
		default:
			writeError(w, r, err)
		}
	})
}

type startedWriter struct {
	http.ResponseWriter
	started bool
}

// http.ResponseController needs Unwrap.
func (w *startedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *startedWriter) WriteHeader(code int) {
	w.started = true
	w.ResponseWriter.WriteHeader(code)
}

func (w *startedWriter) Write(p []byte) (int, error) {
	w.started = true
	return w.ResponseWriter.Write(p)
}
