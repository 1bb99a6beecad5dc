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

// Config configures a run.
type Config struct {
	// ID is the id of the run.
	ID   string
	Pool *pgxpool.Pool
	// Now is the reference time, the only clock of the run.
	Now time.Time
	// ContinueOnError continues after a failed task.
	ContinueOnError bool
	// Pipeline is all tasks. Todo are the tasks to do, in order, and Chosen all tasks of the run, with the ones that
	// are done already; nil if these are Todo.
	Pipeline, Todo, Chosen []plan.Task
	// External are the tasks of Todo that work on other databases, by name.
	External map[string]external.Task
	// Cursor is how far a previous worker came with the first task.
	Cursor purge.Cursor
	// Succeeded are the tasks of the run that have succeeded. Failed are the tasks that have failed, or were not run
	// because a task that they require did not succeed.
	Succeeded, Failed map[string]bool
	// Settings configure batches.
	Settings purge.Settings
	// Lock is the advisory lock that all batches of the run share; 0 for none.
	Lock int64
	// MidSourcing configures how deliveries of mid-sourcing servers are handled.
	MidSourcing midsourcing.Config
	// RelatedListTables are further tables whose iGroupId is the id of a list, and Include the further tables of tasks,
	// by the names of the tasks. Both are stored names.
	RelatedListTables []string
	Include           map[string][]string
	// NoCampaign says that the database is not that of the application, so that Pipeline has no tasks for it.
	NoCampaign bool
	// Log receives panics with their stacks; nil for slog.Default().
	Log *slog.Logger

	// VacuumTruncate lets VACUUM give free space at the end of a table back, for which it locks the table exclusively.
	VacuumTruncate bool
	// SavedPlan is what a dry run has found of each task, by name: nothing else is deleted; nil to delete all obsolete
	// rows.
	SavedPlan map[string]preview.Task

	// DryRun counts without changing anything. The fields below apply only then.
	DryRun bool
	// Standby is read instead of Pool.
	Standby Standby
	// WhatIf replaces stored options, by name; nil to use those.
	WhatIf map[string]int
	// Done is what a previous worker of the dry run has found of the tasks that are done, by name.
	Done map[string]preview.Task
}

// Scope returns which tables the tasks need, in addition to those of the application.
func (c Config) Scope() campaign.Scope {
	scope := campaign.Scope{NoCampaign: c.NoCampaign}
	for _, t := range c.Pipeline {
		scope.Named = append(scope.Named, t.Names...)
	}
	return scope
}

// Standby is a hot standby of the database's server.
type Standby struct {
	// Pool is the same database there; nil without a standby.
	Pool *pgxpool.Pool
	// MaxWait is how long a dry run waits until the standby has replayed what was written before it started; 0 for ten
	// minutes.
	MaxWait time.Duration
}
