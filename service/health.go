package service

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/rescue"
)

// lookAgain is how often a client that watches the health has it looked at.
const lookAgain = 5 * time.Second

// healthServer serves gRPC health, which is that of /readyz: that of the whole server and of both services.
type healthServer struct {
	*health.Server
	ready func(context.Context) error
	log   *slog.Logger
}

// look brings the health up to date.
func (h healthServer) look(ctx context.Context) {
	status := healthv1.HealthCheckResponse_SERVING
	if h.ready(ctx) != nil {
		status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	for _, name := range []string{"", cleanupv1.CleanupService_ServiceDesc.ServiceName, cleanupv1.UserDataService_ServiceDesc.ServiceName} {
		h.SetServingStatus(name, status)
	}
}

// Check implements healthv1.HealthServer.
func (h healthServer) Check(ctx context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	h.look(ctx)
	return h.Server.Check(ctx, req)
}

// List implements healthv1.HealthServer.
func (h healthServer) List(ctx context.Context, req *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	h.look(ctx)
	return h.Server.List(ctx, req)
}

// Watch implements healthv1.HealthServer.
func (h healthServer) Watch(req *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	ctx, stop := context.WithCancel(stream.Context())
	defer stop()
	h.look(ctx)
	go func() {
		ticker := time.NewTicker(lookAgain)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				rescue.Log(h.log, "look at the health", rescue.Call(func() error { h.look(ctx); return nil }))
			}
		}
	}()
	return h.Server.Watch(req, stream)
}
