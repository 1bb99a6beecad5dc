package runs

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/tasklist"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

type Request struct {
	Tasks           []string // empty for all tasks
	SkipTasks       []string
	DryRun          bool
	ContinueOnError bool
	MaxDuration     time.Duration // 0 for no limit
	PauseStopsClock bool          `json:",omitempty"` // whether MaxDuration leaves out pauses
	Pace            pace.Pace     `json:",omitempty"` // "" for the default of the service
	RequestedBy     string
	ByViewer        bool           // the caller may only request dry runs
	Plan            string         // the id of a dry run to follow, instead of Tasks; "" for none
	WhatIf          map[string]int // as in store.Run
	Accepted        []guard.Trip   // the guards that the run of a plan may pass, with the numbers that were accepted
	// ID makes the request idempotent for 24 hours: a repeated request returns the run of the first one. With uuid.Nil
	// each request starts a run.
	ID uuid.UUID `json:"-"`
}

// digest returns a digest of everything but the id, or nil if the request has no id.
func (r Request) digest() ([]byte, error) {
	if r.ID == uuid.Nil {
		return nil, nil
	}
	text, err := json.Marshal(r)
	sum := sha256.Sum256(text)
	return sum[:], err
}

func (r Request) slots() []int16 {
	switch {
	case !r.DryRun:
		return store.DeletingSlots
	case r.ByViewer:
		return store.ViewerRunSlots
	}
	return store.DryRunSlots
}

// validate fails with failure.Violations.
func (r Request) validate(list tasklist.List) error {
	wrong := append(r.contradictsPlan(), r.wrongAccepted()...)
	if r.WhatIf != nil && !r.DryRun {
		wrong.Add("what_if", "is for dry runs")
	}
	valid := list.Names()
	for _, given := range []struct {
		field string
		names []string
	}{{"tasks", r.Tasks}, {"skip_tasks", r.SkipTasks}} {
		if len(given.names) > len(valid)+1 {
			wrong.Addf(given.field, "has %d names; there are %d tasks", len(given.names), len(valid))
			continue
		}
		for i, name := range given.names {
			field := fmt.Sprintf("%s[%d]", given.field, i)
			if given.field == "skip_tasks" && name == policy.All {
				continue
			}
			if !slices.Contains(valid, name) {
				wrong.Addf(field, "%s; the tasks are %s", list.Unknown(name), strings.Join(valid, ", "))
			} else if list.Disabled(name) && !r.DryRun && given.field == "tasks" {
				wrong.Addf(field, "the task %s is disabled: a dry run foresees what it would do", name)
			}
		}
	}
	if problem := schedule.TimeLimitProblem(r.MaxDuration); problem != "" {
		wrong.Add("max_duration", problem)
	}
	if wrong == nil && len(list.Choose(r.Tasks, r.SkipTasks)) == 0 {
		wrong.Add("skip_tasks", "leaves no task to run")
	}
	return wrong.Err()
}

func (r Request) contradictsPlan() (wrong failure.Violations) {
	for field, given := range map[string]bool{
		"tasks":      len(r.Tasks) > 0,
		"skip_tasks": len(r.SkipTasks) > 0,
		"dry_run":    r.DryRun,
	} {
		if given && r.Plan != "" {
			wrong.Add(field, "must not be given with a plan, which has its own tasks")
		}
	}
	slices.SortFunc(wrong, func(a, b failure.Violation) int { return strings.Compare(a.Field, b.Field) })
	return wrong
}

var acceptable = []guard.Name{guard.Share, guard.Cutoff, guard.Growth, guard.Tables, guard.Bytes}

func (r Request) wrongAccepted() (wrong failure.Violations) {
	if len(r.Accepted) > 0 && r.Plan == "" {
		wrong.Add("accept_guards", "is for the run of a plan, whose preview shows the numbers")
	}
	for i, a := range r.Accepted {
		field := fmt.Sprintf("accept_guards[%d].", i)
		switch {
		case a.Guard == guard.Clock || a.Guard == guard.First || a.Guard == guard.Idle:
			wrong.Addf(field+"guard", "%s cannot be accepted, only set", a.Guard)
		case a.Guard == guard.Policy:
			wrong.Add(field+"guard", "need not be accepted: a run by a saved plan passes it")
		case !slices.Contains(acceptable, a.Guard):
			wrong.Addf(field+"guard", "is missing or unknown; the guards that can be accepted are %v", acceptable)
		case a.Table == "":
			wrong.Add(field+"table", "is missing: the table as the preview shows it")
		case a.Number < 0:
			wrong.Add(field+"number", "must not be negative")
		}
	}
	return wrong
}
