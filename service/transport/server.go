// Package transport serves the API on two listeners: gRPC, and HTTP with a REST gateway, the console, metrics and
// health. It stands between the network and the handlers of package service. It limits connections, requests and
// callers, identifies the caller, checks the role and the audit rule of each RPC, sets deadlines, ends calls that
// panic, and turns errors into statuses. Package service gives it the handlers; transport knows none of the
// packages below them.
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
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
)

// stopTimeout is how long calls in progress may take when the server stops.
const stopTimeout = 5 * time.Second

type Server struct {
	grpc, gatewayServer *grpc.Server
	health              healthServer
	pipe                *bufconn.Listener
	gatewayConn         *grpc.ClientConn // the gateway's connection to gatewayServer
	http                *http.Server
}

// Cleanup has the services that work on the database that is cleaned.
type Cleanup interface {
	cleanupv1.CleanupServiceServer
	cleanupv1.GuardServiceServer
	cleanupv1.PolicyServiceServer
	cleanupv1.InsightServiceServer
	cleanupv1.ServerServiceServer
}

// cleanupServices are the names of the services of Cleanup.
var cleanupServices = []string{
	cleanupv1.CleanupService_ServiceDesc.ServiceName, cleanupv1.GuardService_ServiceDesc.ServiceName,
	cleanupv1.PolicyService_ServiceDesc.ServiceName, cleanupv1.InsightService_ServiceDesc.ServiceName,
	cleanupv1.ServerService_ServiceDesc.ServiceName,
}

type Config struct {
	Cleanup  Cleanup
	UserData cleanupv1.UserDataServiceServer
	// CleanupReady and UserDataReady return why the services cannot work now, or nil.
	CleanupReady, UserDataReady func(context.Context) error
	// Metrics are served at /metrics, in addition to the metrics of calls and of the process.
	Metrics prometheus.Collector
	// Audit is where the audit is stored.
	Audit audit.DB
	Guard *access.Guard
	// TLS is for both listeners; nil means plain text.
	TLS *tls.Config
	// HTTPLoopback means that HTTP listens on a loopback address, so that only requests to a loopback host are served.
	HTTPLoopback bool
	// Console means that a page for browsers is served at /.
	Console bool
	// TurnTimeout is how long a call waits while other calls of its caller use the database; 0 means 10 seconds.
	TurnTimeout time.Duration
	Timeouts    Timeouts
	Log         *slog.Logger
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
	measure := grpc.StatsHandler(redactingHandler{
		otelgrpc.NewServerHandler(otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
			otelgrpc.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))),
	})
	out := &Server{
		health: healthServer{health.NewServer(), c.CleanupReady, c.UserDataReady, c.Log},
		pipe:   bufconn.Listen(1 << 20),
	}
	timeouts := c.Timeouts.withDefaults()
	limits := &limits{turnTimeout: cmp.Or(c.TurnTimeout, 10*time.Second), callers: map[string]*usage{}}
	rejections := &rejections{counts: map[rejection]int{}}
	recovery := recovery{c.Log}
	build := func(
		identify func(context.Context) (access.Caller, error), more ...grpc.ServerOption,
	) (*grpc.Server, error) {
		g := &gate{identify, limits, timeouts, rejections, c.Audit, c.Log}
		server := grpc.NewServer(append(
			more, measure, passEncoded(), grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(MaxResponse),
			grpc.MaxHeaderListSize(maxHeaders),
			grpc.ChainUnaryInterceptor(maskUnary, limits.limitActive, recovery.unaryStatus),
			grpc.ChainStreamInterceptor(recovery.stream, g.stream, maskStream, timeouts.stream, recovery.streamStatus),
		)...)
		gated := gatedRegistrar{server, g, recovery}
		cleanupv1.RegisterCleanupServiceServer(gated, c.Cleanup)
		cleanupv1.RegisterGuardServiceServer(gated, c.Cleanup)
		cleanupv1.RegisterPolicyServiceServer(gated, c.Cleanup)
		cleanupv1.RegisterInsightServiceServer(gated, c.Cleanup)
		cleanupv1.RegisterServerServiceServer(gated, c.Cleanup)
		cleanupv1.RegisterUserDataServiceServer(gated, c.UserData)
		healthv1.RegisterHealthServer(gated, out.health)
		reflection.Register(gated)
		return server, checkRules(server)
	}
	if out.grpc, err = build(identifyGRPC(c.Guard), publicOptions(c.TLS, timeouts)...); err != nil {
		return nil, err
	}
	if out.gatewayServer, err = build(identifyFromGateway); err != nil {
		return nil, err
	}
	handler, err := out.handler(httpGate{c.Guard, limits, rejections, c.Log}, registry, c)
	if err != nil {
		return nil, err
	}
	out.http = &http.Server{
		Handler:           timeouts.handler(handler),
		TLSConfig:         c.TLS,
		ReadHeaderTimeout: timeouts.Headers,
		ReadTimeout:       timeouts.Body,
		MaxHeaderBytes:    maxHeaders,
		IdleTimeout:       2 * time.Minute,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: conn.RemoteAddr()})
		},
	}
	return out, nil
}

// publicOptions are for the server that clients reach. The gateway's server gets no limit of streams, because its
// one connection carries the streams of all callers.
func publicOptions(own *tls.Config, timeouts Timeouts) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.InTapHandle(makeAbortable),
		grpc.MaxConcurrentStreams(MaxCalls + MaxStreams),
		grpc.ConnectionTimeout(timeouts.Headers),
		grpc.KeepaliveEnforcementPolicy(
			keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 15 * time.Minute,
			Time:              time.Minute,
			Timeout:           20 * time.Second,
		}),
	}
	if own != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(own)))
	}
	return options
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
	group.Go(func() error { return ignoreStopped(s.gatewayServer.Serve(s.pipe)) })
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

// stop stops REST first, because it depends on gRPC.
func (s *Server) stop() {
	s.health.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	_ = s.gatewayConn.Close()
	for _, server := range []*grpc.Server{s.grpc, s.gatewayServer} {
		force := time.AfterFunc(stopTimeout, server.Stop)
		server.GracefulStop()
		force.Stop()
	}
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
				rescue.Log(h.log, "check the health", rescue.Call(func() error { h.refresh(ctx); return nil }))
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
