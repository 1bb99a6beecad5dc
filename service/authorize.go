package service

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
)

// rule is what a call of an RPC needs.
type rule struct {
	role    access.Role // the lowest
	dryRun  access.Role // the lowest for a dry run; Nobody: the same
	audited bool
}

// rules are the rules of all RPCs, by full name.
var rules = map[string]rule{
	cleanupv1.CleanupService_RunCleanup_FullMethodName:           {role: access.Operator, dryRun: access.Viewer, audited: true},
	cleanupv1.CleanupService_WatchRun_FullMethodName:             {role: access.Viewer},
	cleanupv1.CleanupService_GetRun_FullMethodName:               {role: access.Viewer},
	cleanupv1.CleanupService_ListRuns_FullMethodName:             {role: access.Viewer},
	cleanupv1.CleanupService_CancelRun_FullMethodName:            {role: access.Operator, audited: true},
	cleanupv1.CleanupService_ListTasks_FullMethodName:            {role: access.Viewer},
	cleanupv1.CleanupService_GetOptions_FullMethodName:           {role: access.Viewer},
	cleanupv1.CleanupService_SetOptions_FullMethodName:           {role: access.Admin, audited: true},
	cleanupv1.CleanupService_GetSchedule_FullMethodName:          {role: access.Viewer},
	cleanupv1.CleanupService_SetSchedule_FullMethodName:          {role: access.Admin, audited: true},
	cleanupv1.CleanupService_ListRemoteDeliveries_FullMethodName: {role: access.Viewer},

	cleanupv1.UserDataService_FindUserData_FullMethodName:  {role: access.Admin, audited: true},
	cleanupv1.UserDataService_EraseUserData_FullMethodName: {role: access.Admin, audited: true},
	cleanupv1.UserDataService_ListReceipts_FullMethodName:  {role: access.Admin},

	healthv1.Health_Check_FullMethodName: {},
	healthv1.Health_List_FullMethodName:  {},
	healthv1.Health_Watch_FullMethodName: {},

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {role: access.Viewer},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {role: access.Viewer},
}

// checkRules fails if a server serves an RPC without a rule.
func checkRules(server *grpc.Server) error {
	for name, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			if full := "/" + name + "/" + method.Name; !hasRule(full) {
				return fmt.Errorf("there is no rule who may call %s", full)
			}
		}
	}
	return nil
}

func hasRule(method string) bool {
	_, ok := rules[method]
	return ok
}

// needs is the lowest role for a call with a request; nil: the request is not known yet.
func (r rule) needs(req any) access.Role {
	if r.dryRun == access.Nobody {
		return r.role
	}
	dry, ok := req.(interface{ GetDryRun() bool })
	if req == nil || ok && dry.GetDryRun() {
		return r.dryRun
	}
	return r.role
}

// gate lets calls through to a server, or refuses them, before a request is read, and logs each.
type gate struct {
	identify func(ctx context.Context) (access.Caller, error)
	limits   *limits
	refusals *refusals
	db       audit.DB
	log      *slog.Logger
}

type callerKey struct{}

// caller is who makes a call.
func caller(ctx context.Context) access.Caller {
	c, _ := ctx.Value(callerKey{}).(access.Caller)
	return c
}

// requestHeader is the response header with the id of a call, which its log lines contain: the trace id, if there is one.
const requestHeader = "request-id"

// admit authenticates a call, and counts it as one of its caller's. It returns a context that carries the caller, and a function
// to call when the call has ended.
func (g *gate) admit(ctx context.Context, method string, kind resource) (admitted context.Context, end func(error), err error) {
	r := rules[method]
	if r.role == access.Nobody {
		address := ""
		if p, ok := peer.FromContext(ctx); ok {
			address = hostOf(p.Addr.String())
		}
		_, leave, err := g.limits.enter(address, aCheck)
		return ctx, func(error) { leave() }, err
	}
	begun, id := time.Now(), rand.Text()
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		id = span.TraceID().String()
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(requestHeader, id)) // fails only if headers have been sent
	c, err := g.identify(ctx)
	ctx = context.WithValue(ctx, callerKey{}, c)
	log, leave, stranger := g.log.With("request_id", id), func() {}, err != nil
	end = func(err error) {
		leave()
		code := status.Code(err)
		tell := func() {
			settle(ctx, err)
			log.Log(ctx, levelOf(code), "call", "rpc", short(method), "subject", c.Subject, "address", c.Address, "code", nameOf(code), "error", said(method, err), "took", time.Since(begun))
		}
		if !stranger && !cheap(code) {
			tell()
			return
		}
		g.refusals.report(refusal{c.String(), method, code}, tell, g.again(c, method, code, r.audited && !stranger))
	}
	if err != nil {
		return ctx, end, denied(err)
	}
	if err := g.limits.introduce(ctx, c.String()); err != nil {
		return ctx, end, err
	}
	if _, leave, err = g.limits.enter(c.String(), kind); err != nil {
		return ctx, end, err
	}
	if r.audited {
		ctx = audit.Begin(ctx, g.db, log, c, short(method))
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

// said is the message of an error for the log: empty where it may name a person.
func said(method string, err error) string {
	if strings.HasPrefix(method, "/"+cleanupv1.UserDataService_ServiceDesc.ServiceName) {
		return ""
	}
	return status.Convert(err).Message()
}

// nameOf is the name of a code.
func nameOf(c codes.Code) string { return code.Code(c).String() }

// permit fails if the caller may not make this request.
func permit(ctx context.Context, method string, req any) error {
	if needed := rules[method].needs(req); caller(ctx).Role < needed {
		return status.Errorf(codes.PermissionDenied, "%s needs the role %s", short(method), needed)
	}
	return nil
}

// denied is the status for missing or invalid credentials.
func denied(err error) error {
	if errors.Is(err, access.ErrUnavailable) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Unauthenticated, err.Error())
}

// short is a method's name without its package.
func short(method string) string {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service[strings.LastIndex(service, ".")+1:] + "/" + name
}

// settle records the result of a call, once.
func settle(ctx context.Context, err error) { audit.Settle(ctx, nameOf(status.Code(err))) }

// guarded registers services with a server behind a gate.
type guarded struct {
	*grpc.Server
	*gate
	survivor survivor
}

// RegisterService implements grpc.ServiceRegistrar. Interceptors of unary calls come too late: their request has been read.
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
		wait := await(ctx, method)
		return next(srv, ctx, func(req any) error {
			defer wait.Stop()
			if err := decode(req); err != nil {
				return err
			}
			return permit(ctx, method, req)
		}, interceptor)
	}
}

func (g *gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx, end, err := g.admit(stream.Context(), info.FullMethod, aStream)
	defer func() { end(err) }()
	if err != nil {
		return err
	}
	return handler(srv, &admitted{stream, ctx, info.FullMethod, await(ctx, info.FullMethod)})
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

// overGRPC identifies callers of the gRPC listener.
func overGRPC(guard *access.Guard) func(context.Context) (access.Caller, error) {
	return func(ctx context.Context) (access.Caller, error) {
		var (
			address string
			shown   []*x509.Certificate
		)
		if p, ok := peer.FromContext(ctx); ok {
			address = hostOf(p.Addr.String())
			if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
				shown = info.State.PeerCertificates
			}
		}
		return guard.Identify(ctx, address, shown, metadata.ValueFromIncomingContext(ctx, "authorization"))
	}
}

// overHTTP identifies who makes a request.
func overHTTP(guard *access.Guard, r *http.Request) (access.Caller, error) {
	var shown []*x509.Certificate
	if r.TLS != nil {
		shown = r.TLS.PeerCertificates
	}
	return guard.Identify(r.Context(), hostOf(r.RemoteAddr), shown, r.Header.Values("Authorization"))
}

// callerHeader is how the gateway passes the caller on to the server behind it. Only that server, which nobody but the gateway
// can reach, trusts it.
const callerHeader = "cleanupd-caller-bin"

// forwarded is the metadata by which the gateway passes the caller on.
func forwarded(ctx context.Context, _ *http.Request) metadata.MD {
	c, err := json.Marshal(caller(ctx))
	if err != nil { // never: a Caller has only strings and a number
		return nil
	}
	return metadata.Pairs(callerHeader, string(c))
}

// byGateway trusts the gateway about the caller.
func byGateway(ctx context.Context) (c access.Caller, err error) {
	values := metadata.ValueFromIncomingContext(ctx, callerHeader)
	if len(values) != 1 {
		return c, access.ErrNone
	}
	return c, json.Unmarshal([]byte(values[0]), &c)
}

// only lets requests through whose caller has at least a role.
func only(guard *access.Guard, limits *limits, refusals *refusals, log *slog.Logger, role access.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := overHTTP(guard, r)
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			err = denied(err)
		case c.Role < role:
			err = status.Errorf(codes.PermissionDenied, "%s needs the role %s", r.URL.Path, role)
		default:
			err = limits.introduce(r.Context(), c.String())
		}
		if err == nil {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
			return
		}
		code := status.Code(err)
		refusals.report(refusal{c.String(), "", code}, func() {
			log.Warn("refused", "path", r.URL.Path, "subject", c.Subject, "address", c.Address, "error", status.Convert(err).Message())
		}, func(who string, times int) {
			log.Warn("refused", "who", who, "code", nameOf(code), "times", times)
		})
		writeError(w, r, err)
	})
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
