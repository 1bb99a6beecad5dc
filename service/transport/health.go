package transport

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/rescue"
)

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
