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

// gate identifies, limits and logs the calls of a server, and rejects them before their request is read.
type gate struct {
	identify   func(ctx context.Context) (access.Caller, error)
	limits     *limits
	timeouts   Timeouts
	rejections *rejections
	db         audit.DB
	log        *slog.Logger
}

// requestHeader is the response header with the id of a call, which its log lines contain too. The id is the trace
// id, or a random text without a trace.
const requestHeader = "request-id"

// admit authenticates a call and counts it for its caller. When the call has ended, the returned function must be
// called with the call's error.
func (g *gate) admit(
	ctx context.Context, method string, kind resource,
) (admitted context.Context, end func(error), err error) {
	r := rules[method]
	if r.role == access.Nobody {
		address := ""
		if p, ok := peer.FromContext(ctx); ok {
			address = hostOf(p.Addr.String())
		}
		_, release, err := g.limits.acquire(address, access.Nobody, checkSlot)
		return ctx, func(error) { release() }, err
	}
	start, id := time.Now(), rand.Text()
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		id = span.TraceID().String()
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(requestHeader, id)) // fails only if headers have been sent
	c, err := g.identify(ctx)
	ctx = access.NewContext(ctx, c)
	log, release, stranger := g.log.With("request_id", id), func() {}, err != nil
	end = func(err error) {
		release()
		code := status.Code(err)
		report := func() {
			audit.Settle(ctx, codeName(code))
			log.Log(ctx, levelOf(code), "call", "rpc", shortName(method), "subject", c.Subject, "address", c.Address,
				"code", codeName(code), "error", logText(method, err), "took", time.Since(start))
		}
		if !stranger && !isCheap(code) {
			report()
			return
		}
		g.rejections.report(rejection{c.String(), method, code}, report,
			g.reportRepeated(c, method, code,
				(r.audited || (r.someAudited && code == codes.PermissionDenied)) && !stranger))
	}
	if err != nil {
		return ctx, end, credentialsStatus(err)
	}
	if err := g.limits.authenticated(ctx, c.String()); err != nil {
		return ctx, end, err
	}
	if _, release, err = g.limits.acquire(c.String(), c.Role, kind); err != nil {
		return ctx, end, err
	}
	if r.audited || r.someAudited {
		ctx = audit.Begin(ctx, g.db, log, c, shortName(method), r.someAudited)
	}
	return ctx, end, authorize(ctx, method, nil)
}

// reportRepeated returns a function that reports repeated calls. It avoids keeping the calls themselves in memory.
func (g *gate) reportRepeated(c access.Caller, method string, code codes.Code, audited bool) func(
	who string, times int,
) {
	return func(who string, times int) {
		if audited {
			audit.Repeat(g.db, g.log, c, shortName(method), codeName(code), times)
		}
		g.log.Warn("calls", "rpc", shortName(method), "who", who, "code", codeName(code), "times", times)
	}
}

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

// logText returns the hidden cause, or else the message. For user data RPCs it returns only the SQLSTATE, since a
// message may name a person.
func logText(method string, err error) string {
	var e *hiddenCause
	hidden := errors.As(err, &e)
	switch {
	case strings.HasPrefix(method, "/"+cleanupv1.UserDataService_ServiceDesc.ServiceName):
		return sqlstate.Of(err)
	case hidden:
		return e.cause.Error()
	}
	return status.Convert(err).Message()
}

func codeName(c codes.Code) string { return code.Code(c).String() }

func shortName(method string) string {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service[strings.LastIndex(service, ".")+1:] + "/" + name
}

type gatedRegistrar struct {
	*grpc.Server
	*gate
	recovery recovery
}

// RegisterService wraps the handlers, because interceptors of unary calls run only after their request has been
// read.
func (g gatedRegistrar) RegisterService(service *grpc.ServiceDesc, impl any) {
	behind := *service
	behind.Methods = slices.Clone(service.Methods)
	for i, m := range behind.Methods {
		name := "/" + service.ServiceName + "/" + m.MethodName
		behind.Methods[i].Handler = g.recovery.method(name, g.unary(name, m.Handler))
	}
	g.Server.RegisterService(&behind, impl)
}

func (g *gate) unary(method string, next grpc.MethodHandler) grpc.MethodHandler {
	return func(
		srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (resp any, err error) {
		ctx, end, err := g.admit(ctx, method, callSlot)
		defer func() { end(err) }()
		if err != nil {
			return nil, err
		}
		wait := g.timeouts.abortLate(ctx, method)
		return next(srv, ctx, func(req any) error {
			defer wait.Stop()
			if err := decode(req); err != nil {
				return err
			}
			return authorize(ctx, method, req)
		}, interceptor)
	}
}

func (g *gate) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) (err error) {
	ctx, end, err := g.admit(stream.Context(), info.FullMethod, streamSlot)
	defer func() { end(err) }()
	if err != nil {
		return err
	}
	return handler(srv, &admitted{stream, ctx, info.FullMethod, g.timeouts.abortLate(ctx, info.FullMethod), g.limits})
}

// admitted is a stream whose requests are checked when they are received.
type admitted struct {
	grpc.ServerStream
	ctx    context.Context
	method string
	wait   *time.Timer
	limits *limits
}

func (s *admitted) Context() context.Context { return s.ctx }

func (s *admitted) RecvMsg(m any) error {
	defer s.wait.Stop()
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if err := authorize(s.ctx, s.method, m); err != nil {
		return err
	}
	return s.limits.startDryRun(access.FromContext(s.ctx), m)
}
