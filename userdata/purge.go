package userdata

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Purge is a rule that says which process instances are deleted, with everything that belongs to them.
type Purge struct {
	Name string `json:"Name"`
	// An empty Workflow means all workflows of the application.
	Application string `json:"Application"`
	Workflow    string `json:"Workflow"`
	// DateColumn is the column of tb_process_instance whose dates must be more than Days ago. The user chooses it,
	// since Adobe does not publish the date columns of any release.
	DateColumn string `json:"DateColumn"`
	Days       int    `json:"Days"`
	// Enabled says that runs carry out the purge.
	Enabled bool `json:"Enabled"`
}

func (r Purge) Etag() string { return etag.Of(r) }

func (r Purge) workflows() string {
	if r.Workflow == "" {
		return "all workflows of " + r.Application
	}
	return r.Application + "/" + r.Workflow
}

// covers reports whether the rule applies to the workflow with this name in omd_object_type.
func (r Purge) covers(name string) bool {
	prefix := "pt_" + r.Application + "/"
	return (r.Workflow == "" && strings.HasPrefix(name, prefix)) || name == prefix+r.Workflow
}

var ErrNoPurge = failure.New(failure.NotFound, "no such purge")

func NoPurge(name string) error { return fmt.Errorf("%w: %.64q", ErrNoPurge, name) }

// PurgeNote is called in the transaction that changes a rule. before is nil for a new rule, and after for a deleted
// one.
type PurgeNote func(ctx context.Context, tx pgx.Tx, before, after *Purge) error

const selectPurges = "SELECT name, application, workflow, date_column, days, enabled FROM cleanupd.forms_purge " +
	"WHERE forms_id = $1 "

// Purges returns the purges of this Forms database, ordered by name.
func (m *Manager) Purges(ctx context.Context) ([]Purge, error) { return m.purges(ctx, m.Record) }

func (m *Manager) purges(ctx context.Context, db external.Querier) ([]Purge, error) {
	rows, _ := db.Query(ctx, selectPurges+`ORDER BY name COLLATE "C"`, m.Forms.Identity())
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Purge])
}

// SetPurge creates or changes a purge: change gets the current rule, or nil if it does not exist, and returns the
// new one. It fails with failure.Violations if the new rule is invalid, and with etag.ErrStale if the given etag is
// not the current rule's.
func (m *Manager) SetPurge(
	ctx context.Context, name, givenEtag string, change func(before *Purge) (Purge, error), note PurgeNote,
) (r Purge, err error) {
	if err := m.Own(ctx); err != nil {
		return r, err
	}
	err = pgx.BeginFunc(ctx, m.Record, func(tx pgx.Tx) error {
		before, err := m.lockPurge(ctx, tx, name, givenEtag)
		if err != nil {
			return err
		}
		if r, err = change(before); err != nil {
			return err
		}
		if err := r.validate(); err != nil {
			return err
		}
		if err := m.snapshot(ctx, func(tx *forms.Transaction) error { return r.check(ctx, tx) }); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			`INSERT INTO cleanupd.forms_purge VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (forms_id, name) DO UPDATE
			SET application = excluded.application, workflow = excluded.workflow, date_column = excluded.date_column,
				days = excluded.days, enabled = excluded.enabled`,
			m.Forms.Identity(), r.Name, r.Application, r.Workflow, r.DateColumn, r.Days, r.Enabled,
		); err != nil {
			return err
		}
		return note(ctx, tx, before, &r)
	})
	return r, err
}

// lockPurge returns nil if there is no such purge. It fails with etag.ErrStale if the given etag is not the purge's.
func (m *Manager) lockPurge(ctx context.Context, tx pgx.Tx, name, givenEtag string) (*Purge, error) {
	// a row that does not exist cannot be locked
	if _, err := tx.Exec(ctx, "LOCK TABLE cleanupd.forms_purge IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, selectPurges+"AND name = $2", m.Forms.Identity(), name)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Purge])
	current := ""
	switch {
	case err == nil:
		current = r.Etag()
	case !errors.Is(err, pgx.ErrNoRows):
		return nil, err
	}
	return r, etag.Check(givenEtag, current, "the purge")
}

// DeletePurge fails with ErrNoPurge if there is no such purge, and with etag.ErrStale if the given etag is not the
// rule's.
func (m *Manager) DeletePurge(ctx context.Context, name, givenEtag string, note PurgeNote) error {
	if err := m.Own(ctx); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, m.Record, func(tx pgx.Tx) error {
		before, err := m.lockPurge(ctx, tx, name, givenEtag)
		switch {
		case err != nil:
			return err
		case before == nil:
			return NoPurge(name)
		}
		const deleteRule = "DELETE FROM cleanupd.forms_purge WHERE forms_id = $1 AND name = $2"
		if _, err := tx.Exec(ctx, deleteRule, m.Forms.Identity(), name); err != nil {
			return err
		}
		return note(ctx, tx, before, nil)
	})
}

var purgeName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// maxDays is the same as for the delays of Campaign.
const maxDays = 24_855

// maxName limits the name of an application, workflow or column, in bytes.
const maxName = 255

// validate fails with failure.Violations if the rule is wrong for any database.
func (r Purge) validate() error {
	var wrong failure.Violations
	if !purgeName.MatchString(r.Name) {
		wrong.Add("purge.name", "must be 1 to 40 of a-z, 0-9 and -")
	}
	for _, text := range []struct {
		field, value string
		optional     bool
	}{
		{"purge.application", r.Application, false},
		{"purge.workflow", r.Workflow, true},
		{"purge.date_column", r.DateColumn, false},
	} {
		if text.value == "" && !text.optional {
			wrong.Add(text.field, "is missing")
		}
		if len(text.value) > maxName || !connection.IsStorable(text.value) {
			wrong.Add(text.field, "is longer than 255 bytes, or not a text that a database can store")
		}
	}
	if r.Days < 1 || r.Days > maxDays {
		wrong.Add("purge.days", "must be 1 to 24855")
	}
	return wrong.Err()
}

// check fails with failure.Violations if the rule does not fit the Forms database.
func (r Purge) check(ctx context.Context, tx *forms.Transaction) error {
	var wrong failure.Violations
	_, known, err := tx.WorkflowColumns(ctx, r.covers)
	if err != nil {
		return err
	}
	columns, err := tx.DateColumns(ctx)
	if err != nil {
		return err
	}
	_, exists, names := columnNamed(columns, r.DateColumn)
	if !known {
		wrong.Add("purge.workflow", "no such workflow in the Forms database: "+r.workflows())
	}
	if !exists {
		wrong.Addf("purge.date_column", "%s has no date column of this name; its date columns are: %s",
			forms.InstanceTable, names)
	}
	return wrong.Err()
}

// columnNamed returns the column with a name, and the names of all columns as a list for people.
func columnNamed(columns []forms.Column, name string) (c forms.Column, ok bool, names string) {
	var list []string
	for _, column := range columns {
		if list = append(list, column.Name); column.Name == name {
			c, ok = column, true
		}
	}
	return c, ok, strings.Join(list, ", ")
}
