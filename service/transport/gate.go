package transport

import (
	"cmp"
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
	"sync/atomic"
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
	"github.com/cleanupd/cleanupd/internal/rescue"
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

func identifyGRPC(guard *access.Guard) func(context.Context) (access.Caller, error) {
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

func identifyHTTP(guard *access.Guard, r *http.Request) (access.Caller, error) {
	var shown []*x509.Certificate
	if r.TLS != nil {
		shown = r.TLS.PeerCertificates
	}
	return guard.Identify(r.Context(), hostOf(r.RemoteAddr), shown, r.Header.Values("Authorization"))
}

// callerHeader is the metadata in which the gateway passes the caller on. Only the server behind the gateway trusts
// it, and only the gateway can reach that server.
const callerHeader = "cleanupd-caller-bin"

func callerMetadata(ctx context.Context, _ *http.Request) metadata.MD {
	c, err := json.Marshal(access.FromContext(ctx))
	if err != nil { // cannot happen: a Caller has only strings and a number
		return nil
	}
	return metadata.Pairs(callerHeader, string(c))
}

func identifyFromGateway(ctx context.Context) (c access.Caller, err error) {
	values := metadata.ValueFromIncomingContext(ctx, callerHeader)
	if len(values) != 1 {
		return c, access.ErrNone
	}
	return c, json.Unmarshal([]byte(values[0]), &c)
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

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
