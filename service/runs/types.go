package runs

import (
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/eventlog"
	"github.com/cleanupd/cleanupd/service/runs/instance"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// Names of the rooms.
type (
	Run            = store.Run
	Result         = store.Result
	State          = store.State
	Cause          = store.Cause
	View           = store.View
	Filter         = store.Filter
	Event          = store.Event
	Place          = store.Place
	Kind           = store.Kind
	Progress       = store.Progress
	Space          = store.Space
	Hold           = store.Hold
	HoldKind       = store.HoldKind
	Latched        = store.Latched
	Act            = store.Act
	Replica        = store.Replica
	RemoteDelivery = store.RemoteDelivery
	RowRun         = store.Deletion
	Schedule       = schedule.Schedule
	ReplacedError  = eventlog.ReplacedError
	Adoption       = instance.Adoption
	InvalidError   = failure.Violations
	Violation      = failure.Violation
)

// Values of the rooms.
const (
	Queued            = store.Queued
	Running           = store.Running
	Succeeded         = store.Succeeded
	Failed            = store.Failed
	Cancelled         = store.Cancelled
	CauseCancelled    = store.CauseCancelled
	CauseNotCampaign  = store.CauseNotCampaign
	CauseUnavailable  = store.CauseUnavailable
	CauseInternal     = store.CauseInternal
	CausePlanStale    = store.CausePlanStale
	CausePlanExceeded = store.CausePlanExceeded
	CauseGuarded      = store.CauseGuarded
	Basic             = store.Basic
	Full              = store.Full
	RunStarted        = store.RunStarted
	TaskStarted       = store.TaskStarted
	TaskProgress      = store.TaskProgress
	TaskFinished      = store.TaskFinished
	LogLine           = store.LogLine
	RunFinished       = store.RunFinished
	HoldDeliveries    = store.HoldDeliveries
	HoldLists         = store.HoldLists
	HoldWorkflows     = store.HoldWorkflows
	HoldTable         = store.HoldTable
	HoldRecipients    = store.HoldRecipients
	HoldEverything    = store.HoldEverything
	LogReplaced       = eventlog.LogReplaced
	ForeignInstance   = instance.Foreign
)

// Functions and errors of the rooms.
var (
	ErrNotFound  = store.ErrNotFound
	ErrNoHold    = store.ErrNoHold
	ErrPageToken = store.ErrPageToken
	Migrate      = store.Migrate
	Unlatch      = store.Unlatch
	Own          = instance.Own
	Adopting     = instance.PreviewAdoption
	Unheld       = CheckErasable
)
