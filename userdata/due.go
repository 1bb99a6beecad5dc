package userdata

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// rule is a purge with the moment before which the dates of its process instances are: in seconds since 1970, which
// mean the same to every engine.
type rule struct {
	Purge
	Cutoff int64
}

// at is the rule of a purge at a moment.
func (p Purge) at(now time.Time) rule {
	return rule{p, now.Add(-time.Duration(p.Days) * 24 * time.Hour).Unix()}
}

// inWords says which process instances a rule takes.
func (r rule) inWords() string {
	return fmt.Sprintf(
		"of %s, complete or terminated, %s older than %d days (%s)",
		r.what(),
		r.DateColumn,
		r.Days,
		time.Unix(r.Cutoff, 0).UTC().Format("2006-01-02 15:04:05 UTC"),
	)
}

// dates are the columns of tb_process_instance that hold dates.
func dates(ctx context.Context, tx *transaction) ([]column, error) {
	all, err := tx.columns(ctx, tx, []string{instancesTable})
	return slices.DeleteFunc(all, func(c column) bool { return !c.Date }), err
}

// named is the column of a name among some, and the names of all for people.
func named(columns []column, name string) (c column, ok bool, all string) {
	var names []string
	for _, one := range columns {
		if names = append(names, one.Name); one.Name == name {
			c, ok = one, true
		}
	}
	return c, ok, strings.Join(names, ", ")
}

// search is a rule in a transaction.
type search struct {
	rule
	tx *transaction
	// date is the column that it goes by, and tables are the columns that say of which process instance a row of its
	// workflows' tables is.
	date   column
	tables []column
	// notes say what is left aside, and why.
	notes []string
}

// search prepares a search. A table that another workflow names, too, proves nothing and is left aside.
func (r rule) search(ctx context.Context, tx *transaction) (*search, error) {
	s := &search{rule: r, tx: tx}
	columns, err := dates(ctx, tx)
	if err != nil {
		return nil, err
	}
	var ok bool
	var names string
	if s.date, ok, names = named(columns, r.DateColumn); !ok {
		return nil, fmt.Errorf(
			"%s has no column %q for dates by now; those that it has: %s",
			instancesTable,
			r.DateColumn,
			names,
		)
	}
	own, known, err := workflowColumns(ctx, tx, r.covers)
	if err != nil {
		return nil, err
	}
	others, _, err := workflowColumns(ctx, tx, func(name string) bool { return !r.covers(name) })
	if err != nil {
		return nil, err
	}
	if !known {
		s.notes = append(s.notes, "the database knows no workflow of "+r.what())
	}
	for _, c := range own {
		switch {
		case c.Name != instanceColumn:
		case slices.ContainsFunc(others, func(o column) bool { return o.Table == c.Table }):
			s.notes = append(
				s.notes,
				fmt.Sprintf(
					"%s is the table of other workflows, too: which of its process instances are of %s can not be "+
						"told, and they stay",
					c.Table,
					r.what(),
				),
			)
		default:
			s.tables = append(s.tables, c)
		}
	}
	return s, nil
}

// statement finds process instances that have ended and are old enough, of whatever workflow, by a condition, and ends
// with tail.
func (s *search) statement(condition, tail string) string {
	return fmt.Sprintf(
		"SELECT r.id, %s FROM %s AS r WHERE r.id > 0 AND r.status IN (@ended) AND %s AND %s ORDER BY r.id%s",
		s.tx.seconds(s.date),
		instancesTable,
		s.tx.before(s.date),
		condition,
		tail,
	)
}

// ofWorkflow finds which of some process instances are of the workflow of a table.
func (s *search) ofWorkflow(c column, ids []int64) string {
	return fmt.Sprintf("SELECT r.%s FROM %s AS r WHERE %s", s.tx.quote(c.Name), c.Quoted, s.tx.ids(c, ids))
}

// page is how many process instances are looked at by a statement.
const page = 1000

// all calls found with the process instances that the rule takes, in the order of their ids.
func (s *search) all(ctx context.Context, found func(id int64, date time.Time)) error {
	for after := int64(0); len(s.tables) > 0; {
		ours, old, err := s.among(ctx, "r.id > @after", args{"after": after}, fmt.Sprintf(" LIMIT %d", page))
		if err != nil || len(old) == 0 {
			return err
		}
		for _, id := range ours {
			found(id, old[id])
		}
		after = slices.Max(slices.Collect(maps.Keys(old)))
	}
	return nil
}

// among are those process instances that the rule takes of some, by a condition, in order, and the dates of all that
// are old enough.
func (s *search) among(
	ctx context.Context,
	condition string,
	a args,
	tail string,
) (ours []int64, old map[int64]time.Time, err error) {
	a["ended"], a["cutoff"], old = []int64{complete, terminated}, s.Cutoff, map[int64]time.Time{}
	var id, seconds int64
	if err := s.tx.each(
		ctx,
		s.statement(condition, tail),
		a,
		[]any{&id, &seconds},
		func() { old[id] = time.Unix(seconds, 0) },
	); err != nil ||
		len(old) == 0 {
		return nil, nil, err
	}
	ids := slices.Sorted(maps.Keys(old))
	is := map[int64]bool{}
	for _, c := range s.tables {
		var of any
		if err := s.tx.each(ctx, s.ofWorkflow(c, ids), nil, []any{&of}, func() { is[idOf(of)] = true }); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.Table, err)
		}
	}
	return slices.DeleteFunc(ids, func(id int64) bool { return !is[id] }), old, nil
}

// stillDue are those of some process instances that are due by the purge's rule, and those that no longer are. The
// statement ends with lock.
func (e *erasure) stillDue(
	ctx context.Context,
	tx *transaction,
	ids []int64,
	lock string,
) (due, passed []int64, err error) {
	if e.purge == nil {
		return ids, nil, nil
	}
	s, err := e.purge.search(ctx, tx)
	if err != nil {
		return nil, nil, err
	}
	if due, _, err = s.among(ctx, "r.id IN (@ids)", args{"ids": ids}, lock); err != nil {
		return nil, nil, err
	}
	return due, slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(due, id) }), nil
}

// notDue are the events about process instances that stay since they are not due any longer.
func notDue(ids []int64) (events []Event) {
	for _, id := range ids {
		events = append(
			events,
			logged(
				severity.Info,
				fmt.Sprintf("process instance %d is gone, or is not due any longer: it is left alone", id),
			),
		)
	}
	return events
}
