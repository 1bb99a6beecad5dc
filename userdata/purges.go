package userdata

import (
	"context"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/purge"
)

// Purges returns the rules of purges for this Forms database, ordered by name.
func (m *Manager) Purges(ctx context.Context) ([]purge.Rule, error) {
	return m.rules().List(ctx, m.Record)
}

// SetPurge creates or replaces the rule of a purge. It fails with failure.Violations if the rule is invalid, and with
// purge.ErrStale if an etag is given that is not the current rule's.
func (m *Manager) SetPurge(ctx context.Context, r purge.Rule, etag string, note purge.Note) error {
	if err := m.Own(ctx); err != nil {
		return err
	}
	if err := r.Validate(); err != nil {
		return err
	}
	if err := m.snapshot(ctx, func(tx *forms.Transaction) error { return r.Check(ctx, tx) }); err != nil {
		return err
	}
	return m.rules().Set(ctx, r, etag, note)
}

// DeletePurge deletes the rule of a purge. It fails with purge.ErrNotFound.
func (m *Manager) DeletePurge(ctx context.Context, name string, note purge.Note) error {
	if err := m.Own(ctx); err != nil {
		return err
	}
	return m.rules().Delete(ctx, name, note)
}

// TaskPrefix begins the names of the tasks that are purges.
const TaskPrefix = "forms/"

// Tasks returns the source of the purges as tasks of runs.
func (m *Manager) Tasks() *external.Source {
	return &external.Source{
		Prefix: TaskPrefix,
		Tasks: func(ctx context.Context, db external.Querier) (list []external.Task, err error) {
			rules, err := m.rules().List(ctx, db)
			for _, r := range rules {
				list = append(list, external.Task{
					Name:     TaskPrefix + r.Name,
					Title:    "Process instances: " + r.Workflows(),
					Disabled: !r.Enabled,
					Description: fmt.Sprintf(
						"Process instances of AEM Forms, with their tasks, data and documents: of %s, complete or "+
							"terminated, and %s older than %d days.",
						r.Workflows(), r.DateColumn, r.Days,
					),
					Basis: fmt.Sprintf("%s, %s older than %d days", r.Workflows(), r.DateColumn, r.Days),
					Work:  purgeTask{m, r},
				})
			}
			return list, err
		},
	}
}
