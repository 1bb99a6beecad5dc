package plan

import (
	"slices"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Family is a kind of table that the application and its customers may have any number of.
type Family struct {
	// Task is the name of the task that deletes obsolete rows of such tables.
	Task string
	// Noun describes such a table for people. Criterion explains why the task does not clean one by default.
	Noun, Criterion string
	// Default selects the tables that the task cleans by default.
	Default Selector
	// Matches reports whether a table has the features of the family.
	Matches func(t *campaign.Table) bool
}

// Included selects the tables of the family that the operator includes, and notes the others that match it.
func (f Family) Included(env Env, p *Plan) (found []*campaign.Table, err error) {
	defaults, err := f.Default(env, &Plan{})
	if err != nil {
		return nil, err
	}
	for _, t := range env.Catalog.Tables(f.Matches) {
		switch {
		case slices.Contains(defaults, t) || campaign.LooksLikeWorkTable(t.Name):
		case slices.Contains(env.Include[f.Task], t.Name):
			found = append(found, t)
		default:
			p.note(message.TableNotIncluded.With(
				"table", t.Name, "kind", f.Noun, "criterion", f.Criterion, "task", f.Task,
			))
		}
	}
	for _, name := range env.Include[f.Task] {
		if t := env.Catalog.Table(name); t == nil || !f.Matches(t) {
			p.note(message.IncludedTableUnfit.With("table", name, "task", f.Task, "kind", f.Noun))
		}
	}
	return found, nil
}
