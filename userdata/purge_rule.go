package userdata

import (
	"context"
	"regexp"
	"strings"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Rule says which process instances a purge deletes, with everything that belongs to them.
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

var purgeName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// maxDays is the same as for the delays of Campaign.
const maxDays = 24_855

// maxName limits the name of an application, workflow or column, in bytes.
const maxName = 255

// Check fails with failure.Violations if the rule does not fit the Forms database.
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
		wrong.Add("purge.workflow", "the database knows no workflow of "+r.workflows())
	}
	if !exists {
		wrong.Addf("purge.date_column", "%s has no date column of this name; its date columns are: %s",
			forms.InstanceTable, names)
	}
	return wrong.Err()
}

// Validate fails with failure.Violations if the rule is wrong for any database.
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
