package userdata

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Criteria are a rule and its cutoff, stored with the erasures of a purge.
type criteria struct {
	Purge
	Cutoff int64 `json:"Cutoff"` // in seconds since 1970, which every database understands alike
}

// At returns the criteria at the reference time now.
func (r Purge) at(now time.Time) criteria {
	return criteria{r, now.Add(-time.Duration(r.Days) * 24 * time.Hour).Unix()}
}

func (c criteria) describe() string {
	return fmt.Sprintf("of %s, complete or terminated, %s older than %d days (%s)", c.workflows(), c.DateColumn, c.Days,
		time.Unix(c.Cutoff, 0).UTC().Format("2006-01-02 15:04:05 UTC"))
}

// Search finds process instances in one transaction.
type purgeSearch struct {
	criteria
	// Notes say which tables cannot be used, and why.
	Notes []message.Message

	tx     *forms.Transaction
	date   forms.Column   // the column DateColumn
	tables []forms.Column // the columns of the workflows' tables that name the process instance
}

// Search does not use tables that several workflows share, since the workflow of their rows is unknown.
func (c criteria) search(ctx context.Context, tx *forms.Transaction) (*purgeSearch, error) {
	s := &purgeSearch{criteria: c, tx: tx}
	dates, err := tx.DateColumns(ctx)
	if err != nil {
		return nil, err
	}
	var ok bool
	var names string
	if s.date, ok, names = columnNamed(dates, c.DateColumn); !ok {
		return nil, fmt.Errorf("%s has no date column %q any longer; its date columns are: %s", forms.InstanceTable,
			c.DateColumn, names)
	}
	columns, known, err := tx.WorkflowColumns(ctx, c.covers)
	if err != nil {
		return nil, err
	}
	others, _, err := tx.WorkflowColumns(ctx, func(name string) bool { return !c.covers(name) })
	if err != nil {
		return nil, err
	}
	if !known {
		s.Notes = append(s.Notes, message.FormsWorkflowUnknown.With("workflows", c.workflows()))
	}
	for _, column := range columns {
		switch {
		case !column.Instance:
		case column.Ambiguous:
			s.Notes = append(s.Notes,
				message.FormsTableAmbiguous.With("table", column.Table, "workflows", c.workflows()))
		case slices.ContainsFunc(others, func(o forms.Column) bool { return o.Table == column.Table }):
			s.Notes = append(s.Notes, message.FormsTableShared.With("table", column.Table, "workflows", c.workflows()))
		default:
			s.tables = append(s.tables, column)
		}
	}
	return s, nil
}

// endedQuery selects process instances of any workflow that ended before the cutoff and satisfy the condition.
func (s *purgeSearch) endedQuery(condition, tail string) string {
	return fmt.Sprintf(
		"SELECT r.id, %s FROM %s AS r WHERE r.id > 0 AND r.status IN (@ended) AND %s AND %s ORDER BY r.id%s",
		s.tx.Seconds(s.date), forms.InstanceTable, s.tx.Before(s.date), condition, tail)
}

// workflowQuery selects which of the ids occur in a workflow's table.
func (s *purgeSearch) workflowQuery(c forms.Column, ids []int64) string {
	return fmt.Sprintf("SELECT r.%s FROM %s AS r WHERE %s", s.tx.Quote(c.Name), c.Quoted, s.tx.HasID(c, ids))
}

// pageSize is how many process instances a query reads.
const instancesPerPage = 1000

var (
	pageCondition = "r.id > @after"
	pageTail      = fmt.Sprintf(" LIMIT %d", instancesPerPage)
)

// Each calls found for each process instance that matches, in the order of ids.
func (s *purgeSearch) each(ctx context.Context, found func(id int64, date time.Time)) error {
	for after := int64(0); len(s.tables) > 0; {
		matches, dates, err := s.matching(ctx, pageCondition, forms.Args{"after": after}, pageTail)
		if err != nil || len(dates) == 0 {
			return err
		}
		for _, id := range matches {
			found(id, dates[id])
		}
		after = slices.Max(slices.Collect(maps.Keys(dates)))
	}
	return nil
}

// matching returns the ids that match, in order, and the dates of all process instances that satisfy the condition
// and ended before the cutoff, including those of other workflows.
func (s *purgeSearch) matching(
	ctx context.Context, condition string, a forms.Args, tail string,
) (matches []int64, dates map[int64]time.Time, err error) {
	a["ended"], a["cutoff"], dates = forms.EndedStatuses, s.Cutoff, map[int64]time.Time{}
	var id, seconds int64
	read := func() { dates[id] = time.Unix(seconds, 0) }
	if err := s.tx.Each(ctx, s.endedQuery(condition, tail), a, []any{&id, &seconds}, read); err != nil {
		return nil, nil, err
	}
	if len(dates) == 0 {
		return nil, nil, nil
	}
	ids := slices.Sorted(maps.Keys(dates))
	ofWorkflow := map[int64]bool{}
	for _, c := range s.tables {
		var value any
		read := func() { ofWorkflow[forms.ID(value)] = true }
		if err := s.tx.Each(ctx, s.workflowQuery(c, ids), nil, []any{&value}, read); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.Table, err)
		}
	}
	return slices.DeleteFunc(ids, func(id int64) bool { return !ofWorkflow[id] }), dates, nil
}

// StillMatching splits ids into process instances that still match, and others. The clause lock locks the rows of
// the matches.
func (c criteria) stillMatching(
	ctx context.Context, tx *forms.Transaction, ids []int64, lock string,
) (matches, others []int64, err error) {
	s, err := c.search(ctx, tx)
	if err != nil {
		return nil, nil, err
	}
	if matches, _, err = s.matching(ctx, "r.id IN (@ids)", forms.Args{"ids": ids}, lock); err != nil {
		return nil, nil, err
	}
	others = slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(matches, id) })
	return matches, others, nil
}

// Statements returns the statements that find process instances, for people to read.
func (s *purgeSearch) statements() []external.Statement {
	values := strings.NewReplacer("@ended", fmt.Sprintf("%d, %d", forms.Complete, forms.Terminated),
		"@cutoff", fmt.Sprint(s.Cutoff), "@after", "0")
	query := values.Replace(s.endedQuery(pageCondition, pageTail))
	list := []external.Statement{{Table: forms.InstanceTable, Rule: s.describe(), SQL: query}}
	for _, c := range s.tables {
		query := s.workflowQuery(c, []int64{1, 2, 3})
		list = append(list, external.Statement{Table: c.Table, Rule: "of the workflow", SQL: query})
	}
	return append(list, external.Statement{
		Table:   forms.InstanceTable,
		Rule:    "found above, and found again in the transaction that deletes, with all that belongs to it",
		Deletes: true,
	})
}
