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

// recovery ends a call that panics with INTERNAL, and logs the stack.
type recovery struct{ log *slog.Logger }

func (s recovery) call(name string, fn func() error) error {
	err := rescue.Call(fn)
	if panicked := (*rescue.Panic)(nil); errors.As(err, &panicked) {
		rescue.Log(s.log, name, err)
		return status.Error(codes.Internal, panicked.Error())
	}
	return err
}

// method wraps a unary method, including everything that happens before its interceptors.
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

// unaryStatus is the innermost interceptor. Only here errors become statuses.
func (s recovery) unaryStatus(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (resp any, err error) {
	err = s.call(shortName(info.FullMethod), func() (err error) { resp, err = handler(ctx, req); return err })
	return resp, toStatus(ctx, err)
}

// streamStatus is the innermost interceptor of streams, like unaryStatus.
func (s recovery) streamStatus(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return toStatus(stream.Context(), s.stream(srv, stream, info, handler))
}

// handler cuts off a response that has started before a panic.
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

// Unwrap is for http.ResponseController.
func (w *startedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *startedWriter) WriteHeader(code int) {
	w.started = true
	w.ResponseWriter.WriteHeader(code)
}

func (w *startedWriter) Write(p []byte) (int, error) {
	w.started = true
	return w.ResponseWriter.Write(p)
}
