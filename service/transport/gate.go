package transport

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
)

// gate checks every call: admit before any of its request is read, and authorize again once the request has arrived. A
// REST request passes the gate twice: signedIn identifies its caller before the body is read, and admit checks the
// call that the gateway makes, like any other.
type gate struct {
	authenticator *access.Authenticator
	limits        *limits
	rejections    *rejections
	timeouts      Timeouts
	db            audit.DB
	log           *slog.Logger
}

// guardedServer puts all methods of its services behind the gate.
type guardedServer struct {
	*grpc.Server
	gate *gate
}

// RegisterService serves unary methods as streams too, because gRPC reads the request of a unary method before its
// interceptors run.
func (s guardedServer) RegisterService(service *grpc.ServiceDesc, impl any) {
	guarded := *service
	guarded.Methods, guarded.Streams = nil, slices.Clone(service.Streams)
	prefix := "/" + service.ServiceName + "/"
	for i, m := range service.Streams {
		guarded.Streams[i].Handler = s.gate.handler(prefix+m.StreamName, streamSlot, m.Handler)
	}
	for _, m := range service.Methods {
		unary := func(srv any, stream grpc.ServerStream) error {
			out, err := m.Handler(srv, stream.Context(), stream.RecvMsg, s.gate.limits.limitActive)
			if err != nil {
				return err
			}
			return stream.SendMsg(out)
		}
		guarded.Streams = append(guarded.Streams,
			grpc.StreamDesc{StreamName: m.MethodName, Handler: s.gate.handler(prefix+m.MethodName, callSlot, unary)})
	}
	s.Server.RegisterService(&guarded, impl)
}

// call is a call in progress, and the stream of its handler.
type call struct {
	grpc.ServerStream
	gate       *gate
	method     string
	rule       rule
	ctx        context.Context // of the handler: it carries the caller and the audit
	caller     access.Caller
	identified bool
	log        *slog.Logger
	start      time.Time
	release    func()             // gives back what admit took
	late       *time.Timer        // aborts the call if its request does not arrive
	stalled    context.Context    // done when the client has not read a message for too long
	stall      context.CancelFunc // ends stalled
}

// handler returns the handler of a method behind the gate.
func (g *gate) handler(method string, kind resource, next grpc.StreamHandler) grpc.StreamHandler {
	name := shortName(method)
	return func(srv any, stream grpc.ServerStream) error {
		c := &call{
			ServerStream: stream, gate: g, method: method, rule: rules[method], ctx: stream.Context(), log: g.log,
			start: time.Now(), release: func() {},
		}
		return toStatus(stream.Context(), g.rescued(name, func() error {
			err := c.admit(kind)
			if err == nil {
				err = c.serve(srv, next)
			}
			if err = toStatus(stream.Context(), err); c.isMasked() {
				err = maskStatus(err)
			}
			c.end(err)
			return err
		}))
	}
}

// rescued turns a panic into an error, and logs it with its stack.
func (g *gate) rescued(what string, do func() error) error {
	err := failure.Catch(do)
	failure.LogPanic(g.log, what, err)
	return err
}

// requestHeader is the response header with the id of a call, which its log lines contain too. The id is the trace
// id, or a random text without a trace.
const requestHeader = "request-id"

// admit decides whether the call may begin, and counts it towards its caller's limits.
func (c *call) admit(kind resource) (err error) {
	if c.rule.role == access.Nobody {
		_, c.release, err = c.gate.limits.acquire(peerHost(c.ctx), access.Nobody, checkSlot)
		return err
	}
	id := rand.Text()
	if span := trace.SpanContextFromContext(c.ctx); span.IsValid() {
		id = span.TraceID().String()
	}
	_ = c.SetHeader(metadata.Pairs(requestHeader, id)) // fails only if headers have been sent
	c.log = c.log.With("request_id", id)
	if c.caller, err = c.gate.identify(c.ctx); err != nil {
		return credentialsStatus(err)
	}
	c.identified, c.ctx = true, access.NewContext(c.ctx, c.caller)
	if err := c.gate.limits.authenticated(c.ctx, c.caller.String()); err != nil {
		return err
	}
	if _, c.release, err = c.gate.limits.acquire(c.caller.String(), c.caller.Role, kind); err != nil {
		return err
	}
	if c.rule.audited || c.rule.someAudited {
		c.ctx = audit.Begin(c.ctx, c.gate.db, c.log, c.caller, shortName(c.method), c.rule.someAudited)
	}
	return c.authorize(nil)
}

// identify returns the caller. For REST, signedIn has identified it, and the gateway passes it on.
func (g *gate) identify(ctx context.Context) (c access.Caller, err error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return c, access.ErrNone
	}
	if _, ok := from.Addr.(gatewayAddr); ok {
		said := metadata.ValueFromIncomingContext(ctx, callerHeader)
		if len(said) != 1 {
			return c, access.ErrNone
		}
		return c, json.Unmarshal([]byte(said[0]), &c)
	}
	var shown []*x509.Certificate
	if info, ok := from.AuthInfo.(credentials.TLSInfo); ok {
		shown = info.State.PeerCertificates
	}
	return g.authenticator.Identify(ctx, hostOf(from.Addr.String()), shown,
		metadata.ValueFromIncomingContext(ctx, "authorization"))
}

func peerHost(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return hostOf(p.Addr.String())
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

func credentialsStatus(err error) error {
	if errors.Is(err, access.ErrUnavailable) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Unauthenticated, err.Error())
}

// authorize applies the rule of the RPC. req is nil if the request has not arrived yet.
func (c *call) authorize(req any) error {
	if needed := c.rule.needs(req); c.caller.Role < needed {
		return status.Errorf(codes.PermissionDenied, "%s needs the role %s", shortName(c.method), needed)
	}
	return nil
}

type abortKey struct{}

// makeAbortable lets a call be aborted while its request is being read.
func makeAbortable(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, abort := context.WithCancel(ctx)
	return context.WithValue(ctx, abortKey{}, abort), nil
}

// serve runs the handler until it returns, or until the client has not read a message for too long. In the latter case
// the blocked send ends with the stream, and the client still receives the messages in flight, then the error.
func (c *call) serve(srv any, next grpc.StreamHandler) error {
	limit := c.gate.timeouts.Body
	if c.rule.role == access.Nobody { // a request that needs no credentials is as small as headers
		limit = c.gate.timeouts.Headers
	}
	c.late = time.AfterFunc(limit, c.ctx.Value(abortKey{}).(context.CancelFunc))
	defer c.late.Stop()
	c.stalled, c.stall = context.WithCancel(context.Background())
	defer c.stall()
	done := make(chan error, 1)
	go func() { done <- c.gate.rescued(shortName(c.method), func() error { return next(srv, c) }) }()
	select {
	case err := <-done:
		return err
	case <-c.stalled.Done():
		return status.Errorf(codes.Unavailable, "the stream was not read for %s: go on with a new one",
			c.gate.timeouts.Stall)
	}
}

func (c *call) Context() context.Context { return c.ctx }

func (c *call) RecvMsg(m any) error {
	defer c.late.Stop()
	var raw Encoded
	if err := c.ServerStream.RecvMsg(&raw); err != nil {
		return err
	}
	if err := decode(raw, m); err != nil {
		return err
	}
	if err := c.authorize(m); err != nil {
		return err
	}
	return c.gate.limits.startDryRun(c.caller, m)
}

func (c *call) SendMsg(m any) (err error) {
	if c.isMasked() {
		if m, err = maskedMessage(m); err != nil {
			return err
		}
	}
	defer time.AfterFunc(c.gate.timeouts.Stall, c.stall).Stop()
	return c.ServerStream.SendMsg(m)
}

// end logs and audits the result. Repeated rejections, which cost a caller nothing, are reported together.
func (c *call) end(err error) {
	c.release()
	if c.rule.role == access.Nobody {
		return
	}
	result, rpc := status.Code(err), shortName(c.method)
	report := func() {
		audit.Settle(c.ctx, codeName(result))
		c.log.Log(c.ctx, levelOf(result), "call", "rpc", rpc, "subject", c.caller.Subject, "address", c.caller.Address,
			"code", codeName(result), "error", logText(c.method, err), "took", time.Since(c.start))
	}
	if c.identified && !isCheap(result) {
		report()
		return
	}
	g, caller := c.gate, c.caller // the closures below must not keep the call in memory
	audited := c.identified && (c.rule.audited || (c.rule.someAudited && result == codes.PermissionDenied))
	g.rejections.report(rejection{caller.String(), c.method, result}, report, func(who string, times int) {
		if audited {
			audit.Repeat(g.db, g.log, caller, rpc, codeName(result), times)
		}
		g.log.Warn("further calls failed", "rpc", rpc, "who", who, "code", codeName(result), "times", times)
	})
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

// signedIn identifies the caller of an HTTP request, and lets it pass if the caller has any role; authorize decides on
// the call.
func (g *gate) signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var shown []*x509.Certificate
		if r.TLS != nil {
			shown = r.TLS.PeerCertificates
		}
		c, err := g.authenticator.Identify(r.Context(), hostOf(r.RemoteAddr), shown, r.Header.Values("Authorization"))
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			err = credentialsStatus(err)
		case c.Role < access.Viewer:
			err = status.Errorf(codes.PermissionDenied, "%s needs the role %s", r.URL.Path, access.Viewer)
		default:
			err = g.limits.authenticated(r.Context(), c.String())
		}
		if err == nil {
			next.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), c)))
			return
		}
		result := status.Code(err)
		g.rejections.report(rejection{c.String(), "", result}, func() {
			g.log.Warn("request rejected", "path", r.URL.Path, "subject", c.Subject, "address", c.Address,
				"error", status.Convert(err).Message())
		}, func(who string, times int) {
			g.log.Warn("further requests rejected", "who", who, "code", codeName(result), "times", times)
		})
		writeError(w, r, err)
	})
}

// callerHeader is the metadata in which the gateway passes on the caller. It is ignored on other connections.
const callerHeader = "cleanupd-caller-bin"

func callerMetadata(ctx context.Context, _ *http.Request) metadata.MD {
	c, err := json.Marshal(access.FromContext(ctx))
	if err != nil { // cannot happen: a Caller has only strings and a number
		return nil
	}
	return metadata.Pairs(callerHeader, string(c))
}
