// Package service has the handlers of the API. Each translates a message into a call of the packages runs, userdata
// or campaign, and the result into a message. Package transport serves the handlers; it authenticates the callers
// and turns errors into statuses. Package serve builds both.
package service

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/service/transport"
)

// Service implements all services except UserDataService.
type Service struct {
	cleanupv1.UnimplementedCleanupServiceServer
	cleanupv1.UnimplementedGuardServiceServer
	cleanupv1.UnimplementedPolicyServiceServer
	cleanupv1.UnimplementedInsightServiceServer
	cleanupv1.UnimplementedServerServiceServer
	cleanupv1.UnimplementedRestoreServiceServer
	pool *pgxpool.Pool
	runs *runs.Manager
	// hasUserData means that a Forms database is configured.
	hasUserData bool
	Tables      *capacity.Lister
	// stopping is done when streams have to end.
	stopping context.Context
}

// New needs a pool for API calls, as runs.Config.Calls. When stopping ends, streams end with UNAVAILABLE.
func New(stopping context.Context, pool *pgxpool.Pool, manager *runs.Manager) *Service {
	return &Service{
		pool: pool,
		runs: manager,
		Tables: &capacity.Lister{
			Pool:   pool,
			Cover:  manager.Cover,
			Limits: capacity.DefaultLimits,
		},
		stopping: stopping,
	}
}

// NewServer sets the fields of c that depend on the services.
func NewServer(s *Service, u *UserData, c transport.Config) (*transport.Server, error) {
	s.hasUserData = u.forms != nil
	c.Cleanup, c.CleanupReady, c.Metrics, c.Audit = s, s.runs.Ready, s.runs.Metrics(), s.pool
	c.UserData, c.UserDataReady = u, u.ready
	return transport.NewServer(c)
}
