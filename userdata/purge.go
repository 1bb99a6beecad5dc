package userdata

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/outside"
)

// Purge is a rule by which process instances go that have ended long ago, with all that belongs to them.
type Purge struct {
	Name string `json:"Name"`
	// Application and Workflow are those of the process instances; an empty Workflow means all of the application.
	Application string `json:"Application"`
	Workflow    string `json:"Workflow"`
	// DateColumn is the column of tb_process_instance by which they go that are strictly older than Days. Which one
	// there is, and what it means, is published for no release.
	DateColumn string `json:"DateColumn"`
	Days       int    `json:"Days"`
	// Enabled says that runs do it.
	Enabled bool `json:"Enabled"`
}

// Etag changes with the rule.
func (p Purge) Etag() string {
	sum := sha256.Sum256(
		fmt.Appendf(nil, "%q", []any{p.Name, p.Application, p.Workflow, p.DateColumn, p.Days, p.Enabled}),
	)
	return hex.EncodeToString(sum[:8])
}

// what are its process instances, in words.
func (p Purge) what() string {
	if p.Workflow == "" {
		return "all workflows of " + p.Application
	}
	return p.Application + "/" + p.Workflow
}

// covers reports whether a name in omd_object_type is that of a workflow of its.
func (p Purge) covers(name string) bool {
	of := "pt_" + p.Application + "/"
	return (p.Workflow == "" && strings.HasPrefix(name, of)) || name == of+p.Workflow
}

// ErrNoPurge says that there is no purge of a name.
var ErrNoPurge = failure.New(failure.NotFound, "there is no purge of this name")

// ErrStalePurge says that a purge is another one than its caller has read.
var ErrStalePurge = failure.New(failure.Conflict, "the purge has changed since this etag was read: read it again")

// purgeName is what the names of purges look like.
var purgeName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// mostDays is as far back as a delay goes, as with those of Campaign.
const mostDays = 24_855

// longestName is how long the name of an application, workflow or column may be, in bytes.
const longestName = 255

// check returns what is wrong with a purge, by itself and in the Forms database, as failure.Violations.
func (d *Database) checkPurge(ctx context.Context, p Purge) error {
	var wrong failure.Violations
	say := func(bad bool, field, problem string) {
		if bad {
			wrong.Add("purge."+field, problem)
		}
	}
	say(!purgeName.MatchString(p.Name), "name", "must be 1 to 40 of a-z, 0-9 and -")
	for _, text := range []struct {
		field, value string
		required     bool
	}{{"application", p.Application, true}, {"workflow", p.Workflow, false}, {"date_column", p.DateColumn, true}} {
		say(text.required && text.value == "", text.field, "is missing")
		say(
			len(text.value) > longestName || strings.ContainsRune(text.value, 0) || !utf8.ValidString(text.value),
			text.field,
			"is longer than 255 bytes, or no text that a database can store",
		)
	}
	say(p.Days < 1 || p.Days > mostDays, "days", "must be 1 to 24855")
	if wrong != nil {
		return wrong
	}
	err := d.Forms.snapshot(ctx, func(tx *transaction) error {
		if err := d.check(ctx, tx); err != nil {
			return err
		}
		_, known, err := workflowColumns(ctx, tx, p.covers)
		if err != nil {
			return err
		}
		columns, err := dates(ctx, tx)
		_, ok, names := named(columns, p.DateColumn)
		say(!known, "workflow", "the database knows no workflow of "+p.what())
		say(!ok, "date_column", instancesTable+" has no column of this name for dates; those that it has: "+names)
		return err
	})
	if err != nil || wrong == nil {
		return err
	}
	return wrong
}

const selectPurge = "SELECT name, application, workflow, date_column, days, enabled FROM cleanupd.forms_purge WHERE " +
	"forms = $1 "

// Purges returns the purges of this Forms database, by their names.
func (d *Database) Purges(ctx context.Context) ([]Purge, error) { return d.purges(ctx, d.Record) }

func (d *Database) purges(ctx context.Context, db outside.Querier) ([]Purge, error) {
	return collect(ctx, db, pgx.RowToStructByPos[Purge], selectPurge+`ORDER BY name COLLATE "C"`, d.Forms.identity)
}

// purge reads one for a change; nil: there is none.
func (d *Database) purge(ctx context.Context, tx pgx.Tx, name, etag string) (*Purge, error) {
	// one that is not there cannot be locked
	if _, err := tx.Exec(ctx, "LOCK TABLE cleanupd.forms_purge IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return nil, err
	}
	list, err := collect(
		ctx,
		tx,
		pgx.RowToAddrOfStructByPos[Purge],
		selectPurge+"AND name = $2",
		d.Forms.identity,
		name,
	)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0 && etag != "", len(list) > 0 && etag != "" && etag != list[0].Etag():
		return nil, ErrStalePurge
	case len(list) == 0:
		return nil, nil
	}
	return list[0], nil
}

// SetPurge creates or replaces a purge, and calls noted with what was before (nil: none) in the transaction of the
// change. It fails with failure.Violations, or with ErrStalePurge if an etag is given that is not that of the purge as it is.
func (d *Database) SetPurge(
	ctx context.Context,
	p Purge,
	etag string,
	noted func(ctx context.Context, tx pgx.Tx, before *Purge) error,
) error {
	if err := d.Own(ctx); err != nil {
		return err
	}
	if err := d.checkPurge(ctx, p); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, d.Record, func(tx pgx.Tx) error {
		before, err := d.purge(ctx, tx, p.Name, etag)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			`INSERT INTO cleanupd.forms_purge VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (forms, name) DO UPDATE
			SET application = excluded.application, workflow = excluded.workflow, date_column = excluded.date_column,
				days = excluded.days, enabled = excluded.enabled`,
			d.Forms.identity,
			p.Name,
			p.Application,
			p.Workflow,
			p.DateColumn,
			p.Days,
			p.Enabled,
		); err != nil {
			return err
		}
		return noted(ctx, tx, before)
	})
}

// DeletePurge removes a purge, and calls noted with it in the transaction of the change. It fails with ErrNoPurge.
func (d *Database) DeletePurge(
	ctx context.Context,
	name string,
	noted func(ctx context.Context, tx pgx.Tx, before *Purge) error,
) error {
	if err := d.Own(ctx); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, d.Record, func(tx pgx.Tx) error {
		before, err := d.purge(ctx, tx, name, "")
		if err == nil && before == nil {
			err = fmt.Errorf("%w: %.64q", ErrNoPurge, name)
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			"DELETE FROM cleanupd.forms_purge WHERE forms = $1 AND name = $2",
			d.Forms.identity,
			name,
		); err != nil {
			return err
		}
		return noted(ctx, tx, before)
	})
}
