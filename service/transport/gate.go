package transport

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
)

// gate lets calls through to a server, or refuses them, before a request is read, and logs each.
type gate struct {
	identify func(ctx context.Context) (access.Caller, error)
	limits   *limits
	timeouts Timeouts
	refusals *refusals
	db       audit.DB
	log      *slog.Logger
}

// requestHeader is the response header with the id of a call, which its log lines contain: the trace id, if there is
// one.
const requestHeader = "request-id"

// admit authenticates a call, and counts it as one of its caller's. It returns a context that carries the caller, and a
// function to call when the call has ended.
func (g *gate) admit(
	ctx context.Context,
	method string,
	kind resource,
) (admitted context.Context, end func(error), err error) {
	r := rules[method]
	if r.role == access.Nobody {
		address := ""
		if p, ok := peer.FromContext(ctx); ok {
			address = hostOf(p.Addr.String())
		}
		_, leave, err := g.limits.enter(address, access.Nobody, aCheck)
		return ctx, func(error) { leave() }, err
	}
	begun, id := time.Now(), rand.Text()
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		id = span.TraceID().String()
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(requestHeader, id)) // fails only if headers have been sent
	c, err := g.identify(ctx)
	ctx = access.NewContext(ctx, c)
	log, leave, stranger := g.log.With("request_id", id), func() {}, err != nil
	end = func(err error) {
		leave()
		code := status.Code(err)
		tell := func() {
			audit.Settle(ctx, nameOf(status.Code(err)))
			log.Log(
				ctx,
				levelOf(code),
				"call",
				"rpc",
				short(method),
				"subject",
				c.Subject,
				"address",
				c.Address,
				"code",
				nameOf(code),
				"error",
				said(method, err),
				"took",
				time.Since(begun),
			)
		}
		if !stranger && !cheap(code) {
			tell()
			return
		}
		g.refusals.report(
			refusal{c.String(), method, code},
			tell,
			g.again(c, method, code, (r.audited || (r.someAudited && code == codes.PermissionDenied)) && !stranger),
		)
	}
	if err != nil {
		return ctx, end, denied(err)
	}
	if err := g.limits.introduce(ctx, c.String()); err != nil {
		return ctx, end, err
	}
	if _, leave, err = g.limits.enter(c.String(), c.Role, kind); err != nil {
		return ctx, end, err
	}
	if r.audited || r.someAudited {
		ctx = audit.Begin(ctx, g.db, log, c, short(method), r.someAudited)
	}
	return ctx, end, permit(ctx, method, nil)
}

// again reports calls that were refused some more times. It does not hold on to any of them.
func (g *gate) again(c access.Caller, method string, code codes.Code, audited bool) func(who string, times int) {
	return func(who string, times int) {
		if audited {
			audit.Repeat(g.db, g.log, c, short(method), nameOf(code), times)
		}
		g.log.Warn("calls", "rpc", short(method), "who", who, "code", nameOf(code), "times", times)
	}
}

// levelOf is the log level of a call with a status code.
func levelOf(c codes.Code) slog.Level {
	switch c {
	case codes.OK:
		return slog.LevelDebug
	case codes.Unauthenticated, codes.PermissionDenied, codes.ResourceExhausted, codes.Unavailable:
		return slog.LevelWarn
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// said is the message of an error for the log, or its cause; only the SQLSTATE, if there is one, where it may name a
// person.
func said(method string, err error) string {
	var e *unexpected
	hidden := errors.As(err, &e)
	switch {
	case strings.HasPrefix(method, "/"+cleanupv1.UserDataService_ServiceDesc.ServiceName):
		return sqlstate.Of(err)
	case hidden:
		return e.cause.Error()
	}
	return status.Convert(err).Message()
}

// nameOf is the name of a code.
func nameOf(c codes.Code) string { return code.Code(c).String() }

// short is a method's name without its package.
func short(method string) string {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service[strings.LastIndex(service, ".")+1:] + "/" + name
}

// guarded registers services with a server behind a gate.
type guarded struct {
	*grpc.Server
	*gate
	survivor recovery
}

// RegisterService implements grpc.ServiceRegistrar. Interceptors of unary calls come too late: their request has been
// read.
func (g guarded) RegisterService(service *grpc.ServiceDesc, impl any) {
	behind := *service
	behind.Methods = slices.Clone(service.Methods)
	for i, m := range behind.Methods {
		name := "/" + service.ServiceName + "/" + m.MethodName
		behind.Methods[i].Handler = g.survivor.method(name, g.unary(name, m.Handler))
	}
	g.Server.RegisterService(&behind, impl)
}

func (g *gate) unary(method string, next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (resp any, err error) {
		ctx, end, err := g.admit(ctx, method, aCall)
		defer func() { end(err) }()
		if err != nil {
			return nil, err
		}
		wait := g.timeouts.await(ctx, method)
		return next(srv, ctx, func(req any) error {
			defer wait.Stop()
			if err := decode(req); err != nil {
				return err
			}
			return permit(ctx, method, req)
		}, interceptor)
	}
}

func (g *gate) stream(
	srv any,
	stream grpc.ServerStream,
	info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) (err error) {
	ctx, end, err := g.admit(stream.Context(), info.FullMethod, aStream)
	defer func() { end(err) }()
	if err != nil {
		return err
	}
	return handler(srv, &admitted{stream, ctx, info.FullMethod, g.timeouts.await(ctx, info.FullMethod)})
}

// admitted is a stream whose caller is known. Its requests are checked when they are received.
type admitted struct {
	grpc.ServerStream
	ctx    context.Context
	method string
	wait   *time.Timer
}

// Context implements grpc.ServerStream.
func (s *admitted) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *admitted) RecvMsg(m any) error {
	defer s.wait.Stop()
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return permit(s.ctx, s.method, m)
}
