package campaign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// ErrNoOptionTable means that XtkOption, or a column of it, is missing.
var ErrNoOptionTable = failure.New(failure.Precondition,
	"table XtkOption, or a column of it, is missing: options cannot be stored")

// KeepsMoments reports whether StoreTime can store a time: XtkOption must have the columns, and row security must
// not hide the row.
func (c *Catalog) KeepsMoments() bool {
	t := c.Table("XtkOption")
	return t != nil && t.Has("iOptionId", "sName", "iDataType", "tsTimeStampValue") && !t.RowSecurity
}

// These are values of XtkOption.iDataType.
const (
	typeNumber = 3
	typeText   = 6
	typeMoment = 7
)

// maxInserts is how often inserting a row is tried if others take the new id first.
const maxInserts = 10

// StoreNumber stores an option: days for a delay, or the code for NoStats. It must run in a transaction.
func StoreNumber(ctx context.Context, tx pgx.Tx, c *Catalog, opt Option, value int) error {
	number := int64(value)
	if opt.kind == delay {
		number *= int64(Day / time.Second)
	}
	return store(ctx, tx, c, opt, "iLongValue", typeNumber, number)
}

// StoreTime must run in a transaction.
func StoreTime(ctx context.Context, tx pgx.Tx, c *Catalog, opt Option, value time.Time) error {
	return store(ctx, tx, c, opt, "tsTimeStampValue", typeMoment, value)
}

// ResetOption deletes the option's row, so that its default applies.
func ResetOption(ctx context.Context, tx pgx.Tx, c *Catalog, opt Option) error {
	t := c.Table("XtkOption")
	if t == nil || !t.Has("iOptionId", "sName") {
		return ErrNoOptionTable
	}
	_, err := tx.Exec(ctx, "DELETE FROM "+t.Quoted()+" WHERE sName = $1 AND iOptionId <> 0", opt.Name)
	return err
}

// store updates the option's row, or inserts it. A row keeps its type; if that is text, a number is also stored as
// text. If others have inserted the row or taken the new id in between, the insert is rolled back and everything is
// tried again.
func store(ctx context.Context, tx pgx.Tx, c *Catalog, opt Option, column string, dataType int, value any) error {
	t := c.Table("XtkOption")
	if t == nil || !t.Has("iOptionId", "sName", "iDataType", column) {
		return ErrNoOptionTable
	}
	cast := map[int]string{typeNumber: "$2::bigint", typeMoment: "$2::timestamptz"}[dataType]
	if zone := c.Zone.WrittenIn; zone != "" && t.IsLocalDate(column) {
		cast += " AT TIME ZONE '" + strings.ReplaceAll(zone, "'", "''") + "'"
	}
	set := column + " = " + cast
	if dataType == typeNumber && t.Has("sStringValue") {
		set += fmt.Sprintf(", sStringValue = CASE WHEN iDataType = %d THEN %s::text ELSE sStringValue END", typeText,
			cast)
	}
	for range maxInserts {
		tag, err := tx.Exec(ctx, fmt.Sprintf("UPDATE %s SET %s WHERE sName = $1 AND iOptionId <> 0", t.Quoted(), set),
			opt.Name, value)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		id, err := c.NewIDs(t, "iOptionId")
		if err != nil {
			return err
		}
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx,
				fmt.Sprintf(
					"INSERT INTO %s (iOptionId, sName, iDataType, %s) OVERRIDING SYSTEM VALUE SELECT %s, $1, $3, %s",
					t.Quoted(), column, id, cast),
				opt.Name, value, dataType)
			return err
		})
		if !sqlstate.Is(err, pgerrcode.UniqueViolation) {
			return err
		}
	}
	return fmt.Errorf("store option %s: no free id in XtkOption after %d attempts", opt.Name, maxInserts)
}

// The text of an ErrNoSequence has the missing GRANT.
var ErrNoSequence = errors.New("the role cannot use the id sequence")

type sequence struct {
	quoted string
	usable bool
}

// findSequences finds the sequences of the tables that the cleanup inserts into, and the one that all other tables
// share.
const findSequences = `
SELECT s.relname::text, quote_ident(n.nspname) || '.' || quote_ident(s.relname), has_sequence_privilege(s.oid, 'USAGE')
FROM pg_class s JOIN pg_namespace n ON n.oid = s.relnamespace
WHERE n.nspname = $1 AND s.relname IN ('xtkjoblogid', 'xtkoptionid', 'xtknewid') AND s.relkind = 'S'`

func (c *Catalog) readSequences(ctx context.Context, db Querier) error {
	rows, _ := db.Query(ctx, findSequences, c.Schema)
	var (
		name string
		s    sequence
	)
	if _, err := pgx.ForEachRow(
		rows, []any{&name, &s.quoted, &s.usable}, func() error { c.sequences[name] = s; return nil },
	); err != nil {
		return fmt.Errorf("look for sequences: %w", err)
	}
	return nil
}

// NewIDs returns SQL for new ids, to be used in a SELECT of any number of rows. Ids come from the application's
// sequence if it has one. Otherwise they are below all existing ids, because the application itself would next take
// an id above them. An INSERT of such an id must override system values, because the column may be an identity.
func (c *Catalog) NewIDs(t *Table, column string) (string, error) {
	s, ok := c.sequences[t.Name+"id"]
	if !ok {
		s, ok = c.sequences["xtknewid"]
	}
	switch {
	case !ok:
		return fmt.Sprintf("(SELECT least(min(%s), 0) FROM %s) - row_number() OVER ()", column, t.Quoted()), nil
	case !s.usable:
		return "", fmt.Errorf("%w: GRANT USAGE ON SEQUENCE %s TO %s", ErrNoSequence, s.quoted,
			pgx.Identifier{c.Role}.Sanitize())
	}
	return "nextval('" + strings.ReplaceAll(s.quoted, "'", "''") + "')", nil
}
