package userdata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// TaskPrefix begins the names of tasks that are purges.
const TaskPrefix = "forms/"

// Tasks is the external.Source of runs: each purge is a task.
func (m *Manager) Tasks(ctx context.Context, db external.Querier) (list []external.Task, err error) {
	rules, err := m.purges(ctx, db)
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

// purgeTask makes a purge a task of runs.
type purgeTask struct {
	*Manager
	rule Purge
}

func (p purgeTask) Matches(ctx context.Context, now time.Time) (*external.Matches, error) {
	criteria := p.rule.at(now)
	m := &external.Matches{
		Table:  forms.InstanceTable,
		Rule:   criteria.describe(),
		Cutoff: time.Unix(criteria.Cutoff, 0),
	}
	err := p.snapshot(ctx, func(tx *forms.Transaction) error {
		if err := tx.Each(ctx, "SELECT count(*) FROM "+m.Table, nil, []any{&m.Total}, func() {}); err != nil {
			return err
		}
		s, err := criteria.search(ctx, tx)
		if err != nil {
			return err
		}
		m.Notes = s.Notes
		return s.each(ctx, func(id int64, date time.Time) {
			m.Items = append(m.Items, external.Item{ID: id, Date: date})
		})
	})
	return m, p.explain(ctx, err)
}

// Preview counts only process instances if the Forms server purges, since the other rows that the server deletes are
// unknown.
func (p purgeTask) Preview(
	ctx context.Context, m *external.Matches, found func(ctx context.Context, rows map[string]int64) error,
) error {
	err := p.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		remover := forms.NewRemover(tx, true)
		for ids := range slices.Chunk(idsOf(m.Items), itemsPerTransaction) {
			rows := forms.Rows{forms.InstanceTable: int64(len(ids))}
			if p.Server == nil {
				removed, err := remover.Instances(ctx, ids, p.InDatabase)
				if err != nil {
					return err
				}
				rows = removed.Total()
			}
			if err := found(ctx, rows); err != nil {
				return err
			}
		}
		return nil
	})
	return p.explain(ctx, err)
}

func idsOf(items []external.Item) (ids []int64) {
	for _, i := range items {
		ids = append(ids, i.ID)
	}
	return ids
}

// instancesPerErasure is high, because each erasure searches the folder of the document storage.
const instancesPerErasure = 10_000

// Delete requests erasures, so that their receipts show what was deleted, and documents whose files cannot be
// deleted are not forgotten.
func (p purgeTask) Delete(
	ctx context.Context, run string, m *external.Matches, done func(ctx context.Context, rows int64) error,
) error {
	if err := p.Own(ctx); err != nil {
		return err
	}
	progress := func(ctx context.Context) error {
		rows, err := p.Deleted(ctx, run)
		if err != nil {
			return err
		}
		return done(ctx, rows)
	}
	criteria := criteria{Purge: p.rule, Cutoff: m.Cutoff.Unix()}
	for ids := idsOf(m.Items); ; {
		id, err := p.unfinished(ctx, run)
		if err == nil && id == "" {
			if len(ids) == 0 {
				break
			}
			batch := ids[:min(len(ids), instancesPerErasure)]
			ids = ids[len(batch):]
			id, err = p.request(ctx, run, criteria, batch)
		}
		if err != nil {
			return p.explain(ctx, err)
		}
		if id == "" { // another worker has erased all of them
			continue
		}
		claimed := false
		err = p.claim(ctx, id, func(e *erasure) error {
			claimed = true
			stopped, err := e.erase(ctx, progress)
			return cmp.Or(err, stopped)
		})
		switch {
		case errors.As(err, new(*heldError)): // done lets the run notice the hold and begin the task again
			return cmp.Or(progress(ctx), err)
		case err != nil:
			return p.explain(ctx, err)
		case !claimed: // a replica that lost the run still works on it
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(workInterval):
			}
		}
	}
	// a worker may have ended between its last transaction and its report
	if err := progress(ctx); err != nil {
		return err
	}
	return p.checkFailures(ctx, run)
}

// ofPurge is the condition that the erasure e belongs to the purge $2 in the run $1.
const ofPurge = "e.run_id = $1::text::uuid AND e.purge ->> 'Name' = $2"

// unfinished returns an erasure of the purge that has not ended, or "" if all have ended.
func (p purgeTask) unfinished(ctx context.Context, run string) (id string, err error) {
	err = p.Record.QueryRow(ctx, "SELECT e.id::text FROM cleanupd.erasure e WHERE e.state = 'PURGING' AND "+ofPurge,
		run, p.rule.Name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return id, err
}

// request requests an erasure of those process instances that the run has not requested before. It returns "" if
// there are none.
func (p purgeTask) request(
	ctx context.Context, run string, criteria criteria, ids []int64,
) (id string, err error) {
	err = pgx.BeginFunc(ctx, p.Record, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `SELECT id FROM unnest($3::bigint[]) AS candidate (id)
			WHERE NOT EXISTS (SELECT FROM cleanupd.erasure_item i JOIN cleanupd.erasure e ON e.id = i.erasure_id
				WHERE i.item_id = candidate.id AND i.kind = $4 AND `+ofPurge+") ORDER BY id",
			run, p.rule.Name, ids, kindInstance)
		fresh, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(fresh) == 0 {
			return err
		}
		e, err := p.insert(ctx, tx, Request{
			RequestedBy: "run " + run,
			runID:       run,
			purge:       &criteria,
			Instances:   fresh,
		})
		id = e.id
		return err
	})
	return id, err
}

// checkFailures fails if process instances could not be erased in a run, or if documents could not be deleted. The
// error names the receipts with the reasons.
func (p purgeTask) checkFailures(ctx context.Context, run string) error {
	var receipts string
	var instances, sessions int64
	err := p.Record.QueryRow(ctx, `SELECT COALESCE(string_agg(e.id::text, ', ' ORDER BY e.id), ''),
		COALESCE(sum((SELECT count(*) FROM cleanupd.erasure_item
			WHERE erasure_id = e.id AND state = 'FAILED')), 0)::bigint,
		COALESCE(sum((SELECT count(*) FROM cleanupd.erasure_session WHERE erasure_id = e.id)), 0)::bigint
			FROM cleanupd.erasure e WHERE e.state = 'FAILED' AND `+ofPurge, run, p.rule.Name).
		Scan(&receipts, &instances, &sessions)
	if err != nil || receipts == "" {
		return err
	}
	return fmt.Errorf(
		"%d process instances could not be erased, and documents of %d sessions are retained: see receipt %s for the reasons",
		instances, sessions, receipts)
}

// Deleted counts only process instances if the Forms server purges.
func (p purgeTask) Deleted(ctx context.Context, run string) (rows int64, err error) {
	query := "SELECT COALESCE(sum(r.rows), 0)::bigint FROM cleanupd.erasure_rows r " +
		"JOIN cleanupd.erasure e ON e.id = r.erasure_id WHERE "
	if p.Server != nil {
		query = "SELECT count(*) FROM cleanupd.erasure_item i " +
			"JOIN cleanupd.erasure e ON e.id = i.erasure_id WHERE i.state = 'DONE' AND "
	}
	err = p.Record.QueryRow(ctx, query+ofPurge, run, p.rule.Name).Scan(&rows)
	return rows, err
}

// RecentlyDeleted counts the process instances that all purges of the Forms database deleted in the given run and in
// runs that began less than a period before it. It leaves out runs for which the guard on the table's share was
// accepted. It still counts the process instances of runs whose record has been deleted.
func (p purgeTask) RecentlyDeleted(ctx context.Context, run string, period time.Duration) (items int64, err error) {
	err = p.Record.QueryRow(ctx, `SELECT count(*) FROM cleanupd.erasure e
		JOIN cleanupd.erasure_event v ON v.erasure_id = e.id AND v.body ? 'Instance' LEFT
		JOIN cleanupd.run r ON r.id = e.run_id
		WHERE e.forms_id = $1 AND e.purge IS NOT NULL
			AND (r.accepted_guards @> jsonb_build_array(jsonb_build_object('Guard', 'share', 'Table', $2::text))) IS NOT TRUE
		AND (e.run_id = $3::text::uuid OR COALESCE(r.start_time, e.create_time) > (SELECT start_time FROM cleanupd.run
			WHERE id = $3::text::uuid) - $4::bigint * interval '1 microsecond')`,
		p.Forms.Identity(), forms.InstanceTable, run, period.Microseconds()).Scan(&items)
	return items, err
}

// explain hides that the Forms database is lost, since the caller would conclude that the run's own database is
// lost.
func (p purgeTask) explain(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && p.Forms.Lost(err) && p.Ready(ctx) != nil {
		return errors.New("the Forms database is not available: " + sqlstate.Explain(err))
	}
	return err
}

func (p purgeTask) Statements(ctx context.Context, now time.Time) (list []external.Statement, err error) {
	err = p.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		s, err := p.rule.at(now).search(ctx, tx)
		if err == nil {
			list = s.statements()
		}
		return err
	})
	return list, p.explain(ctx, err)
}

// criteria are a rule and its cutoff, stored with the erasures of a purge.
type criteria struct {
	Purge
	Cutoff int64 `json:"Cutoff"` // in seconds since 1970, which every database understands alike
}

// at returns the criteria at the reference time now.
func (r Purge) at(now time.Time) criteria {
	return criteria{r, now.Add(-time.Duration(r.Days) * 24 * time.Hour).Unix()}
}

func (c criteria) describe() string {
	return fmt.Sprintf("of %s, complete or terminated, %s older than %d days (%s)", c.workflows(), c.DateColumn, c.Days,
		time.Unix(c.Cutoff, 0).UTC().Format("2006-01-02 15:04:05 UTC"))
}

// purgeSearch finds process instances in one transaction.
type purgeSearch struct {
	criteria
	// Notes say which tables cannot be used, and why.
	Notes []message.Message

	tx     *forms.Transaction
	date   forms.Column   // the column DateColumn
	tables []forms.Column // the columns of the workflows' tables that name the process instance
}

// search does not use tables that several workflows share, since the workflow of their rows is unknown.
func (c criteria) search(ctx context.Context, tx *forms.Transaction) (*purgeSearch, error) {
	s := &purgeSearch{criteria: c, tx: tx}
	dates, err := tx.DateColumns(ctx)
	if err != nil {
		return nil, err
	}
	var ok bool
	var names string
	if s.date, ok, names = columnNamed(dates, c.DateColumn); !ok {
		return nil, fmt.Errorf("%s no longer has a date column %q; its date columns are: %s", forms.InstanceTable,
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

// each calls found for each process instance that matches, in the order of ids.
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

// instancesPerPage is how many process instances a query reads.
const instancesPerPage = 1000

var (
	pageCondition = "r.id > @after"
	pageTail      = fmt.Sprintf(" LIMIT %d", instancesPerPage)
)

// stillMatching splits ids into process instances that still match, and others. lock is a clause that locks the rows,
// or "".
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

// statements returns the statements that find process instances, for people to read.
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
