package coverage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/service/runs/growth"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

type Lister struct {
	Pool *pgxpool.Pool
	// Masks match the names of work tables, which are listed by kind.
	Masks []insight.Mask
	// Cover may fail with campaign.ErrNotCampaign.
	Cover  func(ctx context.Context) (insight.Coverage, error)
	Limits Limits
}

// Table is a table of the database, or all work tables of a kind.
type Table struct {
	*insight.Table
	growth.Rates
	// CoveredBy lists tasks in the order of the pipeline.
	CoveredBy []string
	// Retained says why work tables are retained.
	Retained []Retained
	// Details, History and Suggestion are empty in a brief list.
	insight.Details
	History    []growth.Point
	Suggestion *Suggestion
}

// Size returns the size in bytes, including indexes.
func (t *Table) Size() int64 { return t.Bytes + t.IndexBytes }

type Query struct {
	Order         Order
	UncoveredOnly bool
	// Brief leaves out everything that is not read from the catalog alone.
	Brief bool
	// SuggestAll makes a suggestion for each table that may have a policy, whatever the limits.
	SuggestAll bool
	// After is the last table of the previous page; zero for the first page.
	After Key
	Size  int
}

type Page struct {
	Tables []*Table
	// Next is the last table of the page if more follow, otherwise zero.
	Next Key
	// SampleTime is when the tables were last sampled; nil if never.
	SampleTime *time.Time
}

func (l *Lister) List(ctx context.Context, q Query) (Page, error) {
	covered, err := l.cover(ctx)
	if err != nil {
		return Page{}, err
	}
	all, grown, err := l.measure(ctx, covered)
	if err != nil {
		return Page{}, err
	}
	names := covered.policyNames(all)
	p := Page{SampleTime: grown.LastTime}
	p.Tables, p.Next = q.cut(all)
	if q.Brief || len(p.Tables) == 0 {
		return p, nil
	}
	if err := l.addDetails(connection.InZone(ctx, covered.Zone), p.Tables, grown.Now); err != nil {
		return Page{}, err
	}
	for _, t := range p.Tables {
		t.Suggestion = l.Limits.suggest(t, covered, names[t.Name], q.SuggestAll, grown.Now)
	}
	return p, nil
}

// cover returns nothing for a database without tables of Campaign. It fails if several schemas have Campaign's
// tables, because otherwise all tables would seem to be uncovered.
func (l *Lister) cover(ctx context.Context) (covered, error) {
	c, err := l.Cover(ctx)
	if errors.Is(err, campaign.ErrNotCampaign) && errors.Unwrap(err) == nil {
		return covered{}, nil
	}
	return covered{c}, err
}

// measure reads the tables without details.
func (l *Lister) measure(ctx context.Context, c covered) ([]*Table, *growth.Growth, error) {
	now, err := store.Now(ctx, l.Pool)
	if err != nil {
		return nil, nil, err
	}
	found, err := insight.Measure(ctx, l.Pool, l.Masks)
	if err != nil {
		return nil, nil, err
	}
	grown, err := growth.Read(ctx, l.Pool, now)
	if err != nil {
		return nil, nil, err
	}
	var all []*Table
	for _, t := range found.Tables {
		listed := &Table{Table: t, Rates: grown.Rates(t)}
		listed.CoveredBy, listed.Retained = c.of(t)
		all = append(all, listed)
	}
	return all, grown, nil
}

func (l *Lister) addDetails(ctx context.Context, page []*Table, now time.Time) error {
	var (
		tables []*insight.Table
		names  []string
	)
	for _, t := range page {
		tables, names = append(tables, t.Table), append(names, t.Name)
	}
	details, err := insight.ReadDetails(ctx, l.Pool, tables)
	if err != nil {
		return err
	}
	history, err := growth.History(ctx, l.Pool, names, now)
	if err != nil {
		return err
	}
	for i, t := range page {
		t.Details, t.History = details[i], history[t.Name]
	}
	return nil
}
