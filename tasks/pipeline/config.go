package pipeline

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type Config struct {
	ID   string
	Pool *pgxpool.Pool
	// Now is the reference time, the only clock of the run.
	Now             time.Time
	ContinueOnError bool
	// Pipeline has all tasks. Todo are the tasks to do, in order. Chosen are all tasks of the run, including those
	// that are already done; nil if these are the same as Todo.
	Pipeline, Todo, Chosen []plan.Task
	// External are the tasks of Todo that work on other databases, by name.
	External map[string]external.Task
	// Cursor is how far a previous worker came with the first task.
	Cursor purge.Cursor
	// Succeeded and Failed are tasks that are already done. Failed includes tasks that were not run because a task
	// that they require did not succeed.
	Succeeded, Failed map[string]bool
	Settings          purge.Settings
	// Lock is the key of the advisory lock that all batches of the run share; 0 stands for none.
	Lock        int64
	MidSourcing midsourcing.Config
	// NoCampaign is set if the database is not the application's, so that Pipeline has no tasks for it.
	NoCampaign bool
	// Log receives panics with their stacks; nil for slog.Default().
	Log *slog.Logger

	// VacuumTruncate lets VACUUM return free space at the end of a table to the file system, for which it locks the
	// table exclusively.
	VacuumTruncate bool
	// SavedPlan is what a dry run has found, by task; nothing else is deleted. If it is nil, all obsolete rows are
	// deleted.
	SavedPlan map[string]preview.Task

	// DryRun is set for a dry run, which counts rows and changes nothing. The fields below apply only to dry runs.
	DryRun bool
	// Standby is read instead of Pool.
	Standby Standby
	// WhatIf has options to use instead of the stored ones, by name; nil if there are none.
	WhatIf map[string]int
	// Done is what a previous worker of the dry run found for the tasks that are already done, by task.
	Done map[string]preview.Task
}

// Scope returns the tables that the tasks need in addition to the application's.
func (c Config) Scope() campaign.Scope {
	scope := campaign.Scope{NoCampaign: c.NoCampaign}
	for _, t := range c.Pipeline {
		scope.Named = append(scope.Named, t.Names...)
	}
	return scope
}

type Standby struct {
	// Pool connects to the same database on the standby; nil without a standby.
	Pool *pgxpool.Pool
	// MaxWait is how long a dry run waits for the standby to replay what was written before the dry run began; 0
	// stands for ten minutes.
	MaxWait time.Duration
}
