// Package transport serves the API on two listeners: gRPC, and HTTP with a REST gateway, the console, metrics and
// health. It stands between the network and the handlers of package service. It limits connections, requests and
// callers, identifies the caller, checks the role and the audit rule of each RPC, sets deadlines, ends calls that
// panic, and turns errors into statuses. Package service gives it the handlers; transport imports none of the packages
// below them.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
)

type Server struct {
	grpc        *grpc.Server
	http        *http.Server
	health      healthServer
	pipe        pipe
	gatewayConn *grpc.ClientConn // the gateway's connection to grpc, through the pipe
}

// Cleanup has the services that work on the database that is cleaned.
type Cleanup interface {
	cleanupv1.CleanupServiceServer
	cleanupv1.GuardServiceServer
	cleanupv1.PolicyServiceServer
	cleanupv1.InsightServiceServer
	cleanupv1.ServerServiceServer
	cleanupv1.RestoreServiceServer
}

// cleanupServices are the names of the services of Cleanup.
var cleanupServices = []string{
	cleanupv1.CleanupService_ServiceDesc.ServiceName, cleanupv1.GuardService_ServiceDesc.ServiceName,
	cleanupv1.PolicyService_ServiceDesc.ServiceName, cleanupv1.InsightService_ServiceDesc.ServiceName,
	cleanupv1.ServerService_ServiceDesc.ServiceName, cleanupv1.RestoreService_ServiceDesc.ServiceName,
}

type Config struct {
	Cleanup  Cleanup
	UserData cleanupv1.UserDataServiceServer
	// CleanupReady and UserDataReady return why the services cannot work at the moment, or nil.
	CleanupReady, UserDataReady func(context.Context) error
	// Metrics are served at /metrics, in addition to those of calls and of the process.
	Metrics prometheus.Collector
	// Audit is where the audit is stored.
	Audit         audit.DB
	Authenticator *access.Authenticator
	// TLS is for both listeners; nil means plain text.
	TLS *tls.Config
	// HTTPLoopback means that HTTP listens on a loopback address, so that only requests to a loopback host are served.
	HTTPLoopback bool
	// Console means that a page for browsers is served at /.
	Console bool
	// TurnTimeout is how long a unary call waits for one of its caller's slots (maxActiveCalls) before it fails with
	// RESOURCE_EXHAUSTED; 0 means 10 seconds. Calls of UserDataService need no slot.
	TurnTimeout time.Duration
	Timeouts    Timeouts
	Log         *slog.Logger
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

func NewServer(c Config) (*Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), c.Metrics)
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	timeouts := c.Timeouts.withDefaults()
	g := &gate{
		authenticator: c.Authenticator,
		limits:        &limits{turnTimeout: cmp.Or(c.TurnTimeout, 10*time.Second), callers: map[string]*usage{}},
		rejections:    &rejections{counts: map[rejection]int{}},
		timeouts:      timeouts,
		db:            c.Audit,
		log:           c.Log,
	}
	s := &Server{
		grpc: grpc.NewServer(
			grpc.StatsHandler(redactingHandler{
				otelgrpc.NewServerHandler(otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
					otelgrpc.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))),
			}),
			grpc.Creds(newCredentials(c.TLS)),
			passEncoded(),
			grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(MaxResponse), grpc.MaxHeaderListSize(maxHeaders),
			grpc.InTapHandle(makeAbortable),
			grpc.MaxConcurrentStreams(maxConnStreams),
			grpc.ConnectionTimeout(timeouts.Headers),
			grpc.KeepaliveEnforcementPolicy(
				keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
			grpc.KeepaliveParams(keepalive.ServerParameters{
				MaxConnectionIdle: 15 * time.Minute,
				Time:              time.Minute,
				Timeout:           20 * time.Second,
			}),
		),
		health: healthServer{health.NewServer(), c.CleanupReady, c.UserDataReady, c.Log},
		pipe:   pipe{bufconn.Listen(1 << 20)},
	}
	guarded := guardedServer{s.grpc, g}
	cleanupv1.RegisterCleanupServiceServer(guarded, c.Cleanup)
	cleanupv1.RegisterGuardServiceServer(guarded, c.Cleanup)
	cleanupv1.RegisterPolicyServiceServer(guarded, c.Cleanup)
	cleanupv1.RegisterInsightServiceServer(guarded, c.Cleanup)
	cleanupv1.RegisterServerServiceServer(guarded, c.Cleanup)
	cleanupv1.RegisterRestoreServiceServer(guarded, c.Cleanup)
	cleanupv1.RegisterUserDataServiceServer(guarded, c.UserData)
	healthv1.RegisterHealthServer(guarded, s.health)
	reflection.Register(guarded)
	if err := checkRules(s.grpc); err != nil {
		return nil, err
	}
	handler, err := s.handler(g, registry, c)
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:           handler,
		TLSConfig:         c.TLS,
		ReadHeaderTimeout: timeouts.Headers,
		ReadTimeout:       timeouts.Body,
		MaxHeaderBytes:    maxHeaders,
		IdleTimeout:       2 * time.Minute,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: conn.RemoteAddr()})
		},
	}
	return s, nil
}

// newCredentials uses TLS, if configured, for network connections. The gateway's in-process connection is plain text.
func newCredentials(config *tls.Config) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	return tlsExceptGateway{credentials.NewTLS(config)}
}

type tlsExceptGateway struct {
	credentials.TransportCredentials
}

func (c tlsExceptGateway) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, ok := conn.(gatewayConn); ok {
		return conn, nil, nil
	}
	return c.TransportCredentials.ServerHandshake(conn)
}

// Serve serves both listeners until the context ends or one of them fails. It then lets calls in progress finish.
// Streams must end by themselves, when the context given to service.New ends.
func (s *Server) Serve(ctx context.Context, grpcListener, httpListener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	limiter := &connLimiter{}
	serve := s.http.Serve
	if s.http.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	group.Go(func() error { return ignoreStopped(s.grpc.Serve(limitedListener{grpcListener, limiter})) })
	group.Go(func() error { return ignoreStopped(s.grpc.Serve(s.pipe)) })
	group.Go(func() error { return ignoreStopped(serve(limitedListener{httpListener, limiter})) })
	group.Go(func() error {
		<-ctx.Done()
		s.stop()
		return nil
	})
	return group.Wait()
}

// ignoreStopped returns nil if the server was stopped, even before it started.
func ignoreStopped(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// stopTimeout is how long calls in progress may take when the server stops.
const stopTimeout = 5 * time.Second

// stop stops REST first, because it depends on gRPC.
func (s *Server) stop() {
	s.health.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	_ = s.gatewayConn.Close()
	force := time.AfterFunc(stopTimeout, s.grpc.Stop)
	defer force.Stop()
	s.grpc.GracefulStop()
}

// refreshInterval is how often the health is checked while a client watches it.
const refreshInterval = 5 * time.Second

// healthServer reports the gRPC health of each service. That of the whole server is the same as /readyz.
type healthServer struct {
	*health.Server
	cleanup, userData func(context.Context) error // say why a service is not ready; nil if it is
	log               *slog.Logger
}

func (h healthServer) notReady(ctx context.Context) error {
	return cmp.Or(h.cleanup(ctx), h.userData(ctx))
}

func (h healthServer) refresh(ctx context.Context) {
	checks := map[string]func(context.Context) error{
		"": h.notReady, cleanupv1.UserDataService_ServiceDesc.ServiceName: h.userData,
	}
	for _, name := range cleanupServices {
		checks[name] = h.cleanup
	}
	for name, ready := range checks {
		status := healthv1.HealthCheckResponse_SERVING
		if ready(ctx) != nil {
			status = healthv1.HealthCheckResponse_NOT_SERVING
		}
		h.SetServingStatus(name, status)
	}
}

func (h healthServer) Check(
	ctx context.Context, req *healthv1.HealthCheckRequest,
) (*healthv1.HealthCheckResponse, error) {
	h.refresh(ctx)
	return h.Server.Check(ctx, req)
}

func (h healthServer) List(ctx context.Context, req *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	h.refresh(ctx)
	return h.Server.List(ctx, req)
}

func (h healthServer) Watch(req *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	ctx, stop := context.WithCancel(stream.Context())
	defer stop()
	h.refresh(ctx)
	go func() {
		ticker := time.NewTicker(refreshInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				failure.LogPanic(h.log, "check the health", failure.Catch(func() error { h.refresh(ctx); return nil }))
			}
		}
	}()
	return h.Server.Watch(req, stream)
}

// redactingHandler gives spans the same error texts as the log (logText).
type redactingHandler struct{ stats.Handler }

type methodKey struct{}

func (d redactingHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return d.Handler.TagRPC(context.WithValue(ctx, methodKey{}, info.FullMethodName), info)
}

func (d redactingHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok && end.Error != nil {
		method, _ := ctx.Value(methodKey{}).(string)
		quiet := *end
		quiet.Error = status.Error(status.Code(end.Error), logText(method, end.Error))
		s = &quiet
	}
	d.Handler.HandleRPC(ctx, s)
}
