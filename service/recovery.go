package service

import (
	"context"
	"log/slog"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/internal/rescue"
)

// recovery ends a call that panics with INTERNAL, and logs the stack.
type recovery struct{ log *slog.Logger }

// method is the handler of a unary method, with all that precedes its interceptors.
func (s recovery) method(name string, next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (resp any, err error) {
		err = rescue.Call(func() (err error) { resp, err = next(srv, ctx, decode, interceptor); return err })
		rescue.Log(s.log, short(name), err)
		return resp, toStatus(ctx, err)
	}
}

func (s recovery) unary(
	ctx context.Context,
	req any,
	info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (resp any, err error) {
	err = rescue.Call(func() (err error) { resp, err = handler(ctx, req); return err })
	rescue.Log(s.log, short(info.FullMethod), err)
	return resp, toStatus(ctx, err)
}

func (s recovery) stream(
	srv any,
	stream grpc.ServerStream,
	info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	err := rescue.Call(func() error { return handler(srv, stream) })
	rescue.Log(s.log, short(info.FullMethod), err)
	return toStatus(stream.Context(), err)
}

// handler is next for HTTP. A response that has begun is cut off.
func (s recovery) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &beginning{ResponseWriter: w}
		err := rescue.Call(func() error { next.ServeHTTP(out, r); return nil })
		rescue.Log(s.log, r.Method+" "+r.URL.Path, err)
		switch {
		case err == nil:
		case out.begun:
			panic(http.ErrAbortHandler)
		default:
			writeError(w, r, status.Error(codes.Internal, err.Error()))
		}
	})
}

// beginning knows whether a response has begun.
type beginning struct {
	http.ResponseWriter
	begun bool
}

// Unwrap is for http.ResponseController.
func (w *beginning) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *beginning) WriteHeader(code int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(code)
}

func (w *beginning) Write(p []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(p)
}
