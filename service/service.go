package service

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs"
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
