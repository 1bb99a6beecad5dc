package service

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// stopTimeout is how long calls under way may take when the server stops.
const stopTimeout = 5 * time.Second

// Server is both listeners, gRPC and HTTP, and the gateway between them.
type Server struct {
	grpc, inner *grpc.Server
	health      *health.Server
	pipe        *bufconn.Listener
	toInner     *grpc.ClientConn // the gateway's
	http        *http.Server
}

// NewServer returns a server of s and u. httpLoopback says that HTTP listens on a loopback address, so that only requests to
// a loopback host are served.
func NewServer(s *Service, u *UserData, httpLoopback bool) (*Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), s.runs.Metrics())
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	measure := grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))))
	out := &Server{health: health.NewServer(), pipe: bufconn.Listen(1 << 20)}
	for _, server := range []**grpc.Server{&out.grpc, &out.inner} {
		*server = grpc.NewServer(measure, grpc.UnaryInterceptor(unaryErrors), grpc.StreamInterceptor(streamErrors))
		cleanupv1.RegisterCleanupServiceServer(*server, s)
		cleanupv1.RegisterUserDataServiceServer(*server, u)
		healthv1.RegisterHealthServer(*server, out.health)
		reflection.Register(*server)
	}
	for _, name := range []string{cleanupv1.CleanupService_ServiceDesc.ServiceName, cleanupv1.UserDataService_ServiceDesc.ServiceName} {
		out.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	handler, err := out.handler(s, registry, httpLoopback)
	if err != nil {
		return nil, err
	}
	// No WriteTimeout: a stream lasts as long as its run.
	out.http = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	return out, nil
}

// Serve serves both listeners until the context ends, and then lets calls under way come to their end. Streams
// must end by themselves (the context given to New).
func (s *Server) Serve(ctx context.Context, grpcListener, httpListener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.grpc.Serve(grpcListener) })
	group.Go(func() error { return s.inner.Serve(s.pipe) })
	group.Go(func() error {
		if err := s.http.Serve(httpListener); err != http.ErrServerClosed {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		s.stop()
		return nil
	})
	return group.Wait()
}

// stop ends REST first, since it stands on gRPC.
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
