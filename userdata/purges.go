package userdata

import (
	"context"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Purges returns the purges of this Forms database, ordered by name.
func (m *Manager) Purges(ctx context.Context) ([]Purge, error) {
	return m.rules().list(ctx, m.Record)
}

// SetPurge creates or changes a purge: change gets the current rule, or nil if it does not exist, and returns the
// new one. It fails with failure.Violations if the new rule is invalid, and with etag.ErrStale if the given etag is
// not the current rule's.
func (m *Manager) SetPurge(
	ctx context.Context, name, givenEtag string, change func(before *Purge) (Purge, error), note PurgeNote,
) (Purge, error) {
	if err := m.Own(ctx); err != nil {
		return Purge{}, err
	}
	return m.rules().set(ctx, name, givenEtag, func(before *Purge) (Purge, error) {
		r, err := change(before)
		if err == nil {
			err = r.validate()
		}
		if err == nil {
			err = m.snapshot(ctx, func(tx *forms.Transaction) error { return r.check(ctx, tx) })
		}
		return r, err
	}, note)
}

// DeletePurge fails with purge.ErrNotFound if there is no such purge, and with etag.ErrStale if the given etag is
// not the rule's.
func (m *Manager) DeletePurge(ctx context.Context, name, givenEtag string, note PurgeNote) error {
	if err := m.Own(ctx); err != nil {
		return err
	}
	return m.rules().delete(ctx, name, givenEtag, note)
}

// TaskPrefix begins the names of tasks that are purges.
const TaskPrefix = "forms/"

// Tasks is the external.Source of runs: each purge is a task.
func (m *Manager) Tasks(ctx context.Context, db external.Querier) (list []external.Task, err error) {
	rules, err := m.rules().list(ctx, db)
	for _, r := range rules {
		list = append(list, external.Task{
			Name:     TaskPrefix + r.Name,
			Title:    "Process instances: " + r.workflows(),
			Disabled: !r.Enabled,
			Description: fmt.Sprintf("Process instances of AEM Forms, with their tasks, data and documents: of %s, "+
				"complete or terminated, and %s older than %d days.", r.workflows(), r.DateColumn, r.Days),
			Basis: fmt.Sprintf("%s, %s older than %d days", r.workflows(), r.DateColumn, r.Days),
			Work:  purgeTask{m, r},
		})
	}
	return list, err
}
