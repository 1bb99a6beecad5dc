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
	"google.golang.org/grpc/test/bufconn"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
)

// stopTimeout is how long calls in progress may take when the server stops.
const stopTimeout = 5 * time.Second

// Server serves gRPC and HTTP, with the gateway between them.
type Server struct {
	grpc, inner *grpc.Server
	health      healthServer
	pipe        *bufconn.Listener
	toInner     *grpc.ClientConn // the gateway's
	http        *http.Server
}

// Config configures a Server.
type Config struct {
	Cleanup  cleanupv1.CleanupServiceServer
	UserData cleanupv1.UserDataServiceServer
	// CleanupReady and UserDataReady return why a service cannot work now, or nil.
	CleanupReady, UserDataReady func(context.Context) error
	// Metrics are served at /metrics, in addition to those of calls and of the process.
	Metrics prometheus.Collector
	// Audit is the database that keeps the audit.
	Audit audit.DB
	// Guard authenticates callers.
	Guard *access.Guard
	// TLS is for both listeners; nil: plain text.
	TLS *tls.Config
	// HTTPLoopback says that HTTP listens on a loopback address, so that only requests to a loopback host are served.
	HTTPLoopback bool
	// Console says that a page for browsers is served at /.
	Console bool
	// TurnTimeout is how long a call waits while others of its caller are at work on the database; 0: 10 seconds.
	TurnTimeout time.Duration
	Timeouts    Timeouts
	Log         *slog.Logger
}

// NewServer returns a server, which Serve starts.
func NewServer(c Config) (*Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		c.Metrics,
	)
	exporter, err := otelprometheus.New(
		otelprometheus.WithRegisterer(registry),
		otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithoutTargetInfo(),
	)
	if err != nil {
		return nil, err
	}
	measure := grpc.StatsHandler(
		redacted{
			otelgrpc.NewServerHandler(
				otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
				otelgrpc.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter))),
			),
		},
	)
	out := &Server{
		health: healthServer{health.NewServer(), c.CleanupReady, c.UserDataReady, c.Log},
		pipe:   bufconn.Listen(1 << 20),
	}
	timeouts := c.Timeouts.withDefaults()
	limits, refusals, survivor := &limits{
		turnTimeout: cmp.Or(c.TurnTimeout, 10*time.Second),
		accounts:    map[string]*account{},
	}, &refusals{
		more: map[refusal]int{},
	}, recovery{
		c.Log,
	}
	build := func(identify func(context.Context) (access.Caller, error), more ...grpc.ServerOption) (*grpc.Server, error) {
		g := &gate{identify, limits, timeouts, refusals, c.Audit, c.Log}
		server := grpc.NewServer(
			append(
				more,
				measure,
				passEncoded(),
				grpc.MaxRecvMsgSize(maxRequest),
				grpc.MaxSendMsgSize(MaxResponse),
				grpc.MaxHeaderListSize(maxHeaders),
				grpc.ChainUnaryInterceptor(limits.inTurn, survivor.unaryStatus),
				grpc.ChainStreamInterceptor(survivor.stream, g.stream, timeouts.stream, survivor.streamStatus),
			)...)
		behind := guarded{server, g, survivor}
		cleanupv1.RegisterCleanupServiceServer(behind, c.Cleanup)
		cleanupv1.RegisterUserDataServiceServer(behind, c.UserData)
		healthv1.RegisterHealthServer(behind, out.health)
		reflection.Register(behind)
		return server, checkRules(server)
	}
	if out.grpc, err = build(overGRPC(c.Guard), outside(c.TLS, timeouts)...); err != nil {
		return nil, err
	}
	if out.inner, err = build(byGateway); err != nil {
		return nil, err
	}
	handler, err := out.handler(limits, refusals, registry, c)
	if err != nil {
		return nil, err
	}
	out.http = &http.Server{
		Handler: timeouts.handler(
			handler,
		),
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

// outside are the options of the server that others reach. The gateway's connection has no limit on streams, since it
// carries those of all callers.
func outside(own *tls.Config, timeouts Timeouts) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.InTapHandle(
			cuttable,
		),
		grpc.MaxConcurrentStreams(MaxCalls + MaxStreams),
		grpc.ConnectionTimeout(timeouts.Headers),
		grpc.KeepaliveEnforcementPolicy(
			keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true},
		),
		grpc.KeepaliveParams(
			keepalive.ServerParameters{
				MaxConnectionIdle: 15 * time.Minute,
				Time:              time.Minute,
				Timeout:           20 * time.Second,
			},
		),
	}
	if own != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(own)))
	}
	return options
}

// Serve serves both listeners until the context ends or one of them fails, and then lets calls in progress finish.
// Streams must end by themselves (when the context given to New does).
func (s *Server) Serve(ctx context.Context, grpcListener, httpListener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	entrance := &connLimiter{}
	serve := s.http.Serve
	if s.http.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	group.Go(func() error { return unlessStopped(s.grpc.Serve(doors{grpcListener, entrance})) })
	group.Go(func() error { return unlessStopped(s.inner.Serve(s.pipe)) })
	group.Go(func() error { return unlessStopped(serve(doors{httpListener, entrance})) })
	group.Go(func() error {
		<-ctx.Done()
		s.stop()
		return nil
	})
	return group.Wait()
}

// unlessStopped is the error of a server that has ended, or nil if it was stopped, even before it began.
func unlessStopped(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// stop stops REST first, since it depends on gRPC.
func (s *Server) stop() {
	s.health.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	_ = s.toInner.Close()
	for _, server := range []*grpc.Server{s.grpc, s.inner} {
		force := time.AfterFunc(stopTimeout, server.Stop)
		server.GracefulStop()
		force.Stop()
	}
}
