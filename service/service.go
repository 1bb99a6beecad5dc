package service

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/transport"
)

// Service implements cleanup.v1.CleanupService.
type Service struct {
	cleanupv1.UnimplementedCleanupServiceServer
	pool *pgxpool.Pool
	runs *runs.Manager
	// userData says that there is a database for the RPCs beside these.
	userData bool
	// stopping ends when streams must end.
	stopping context.Context
}

// New returns the service. Its pool is for what callers ask of the database that is cleaned, such as runs.Config.Calls.
// When stopping ends, its streams end with UNAVAILABLE.
func New(stopping context.Context, pool *pgxpool.Pool, manager *runs.Manager) *Service {
	return &Service{pool: pool, runs: manager, stopping: stopping}
}

// NewServer returns a server of both services. The fields of the configuration that are about these are set here.
func NewServer(s *Service, u *UserData, c transport.Config) (*transport.Server, error) {
	s.userData = u.forms != nil
	c.Cleanup, c.CleanupReady, c.Metrics, c.Audit = s, s.runs.Ready, s.runs.Metrics(), s.pool
	c.UserData, c.UserDataReady = u, u.ready
	return transport.NewServer(c)
}
