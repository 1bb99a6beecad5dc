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
	// Pipeline is all tasks. Todo are the tasks to do, in order. Chosen are all tasks of the run, with those that are
	// done already; nil if these are Todo.
	Pipeline, Todo, Chosen []plan.Task
	// The tasks of Todo that work on other databases, by name.
	External map[string]external.Task
	// How far a previous worker came with the first task.
	Cursor purge.Cursor
	// Failed also has the tasks that were not run because a task that they require did not succeed.
	Succeeded, Failed map[string]bool
	Settings          purge.Settings
	// Lock is the advisory lock that all batches of the run share; 0 for none.
	Lock        int64
	MidSourcing midsourcing.Config
	// RelatedListTables are further tables whose iGroupId is the id of a list; Include are the further tables of tasks,
	// by the names of the tasks. Both are stored names.
	RelatedListTables []string
	Include           map[string][]string
	// NoCampaign: the database is not the application's, so that Pipeline has no tasks for it.
	NoCampaign bool
	// Log receives panics with their stacks; nil for slog.Default().
	Log *slog.Logger

	// VacuumTruncate lets VACUUM give free space at the end of a table back, for which it locks the table exclusively.
	VacuumTruncate bool
	// SavedPlan is what a dry run has found, by the names of tasks: nothing else is deleted. nil deletes all obsolete
	// rows.
	SavedPlan map[string]preview.Task

	// A dry run counts and changes nothing. The fields below apply only to dry runs.
	DryRun bool
	// Standby is read instead of Pool.
	Standby Standby
	// By name; nil for the stored options.
	WhatIf map[string]int
	// Done is what a previous worker of the dry run has found of the tasks that are done, by name.
	Done map[string]preview.Task
}

// The tables that the tasks need in addition to the application's.
func (c Config) Scope() campaign.Scope {
	scope := campaign.Scope{NoCampaign: c.NoCampaign}
	for _, t := range c.Pipeline {
		scope.Named = append(scope.Named, t.Names...)
	}
	return scope
}

type Standby struct {
	// Pool is the same database there; nil without a standby.
	Pool *pgxpool.Pool
	// MaxWait is how long a dry run waits for the standby to replay what was written before it started; 0 for ten
	// minutes.
	MaxWait time.Duration
}
