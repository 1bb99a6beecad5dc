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
	"github.com/cleanupd/cleanupd/tasks/explain"
	"github.com/cleanupd/cleanupd/tasks/inventory"
)

// Lister lists tables.
type Lister struct {
	Pool *pgxpool.Pool
	// Masks are the masks of work tables, which are listed by kind.
	Masks []inventory.Mask
	// Cover returns which tables tasks cover. It may fail with campaign.ErrNotCampaign.
	Cover  func(ctx context.Context) (explain.Coverage, error)
	Limits Limits
}

// Table is a table of the database, or all work tables of a kind.
type Table struct {
	*inventory.Table
	growth.Rates
	// CoveredBy are the tasks that cover it, in the order of the pipeline.
	CoveredBy []string
	// Retained says why work tables are retained.
	Retained []Retained
	// The rest is empty in a brief list.
	inventory.Details
	History    []growth.Point
	Suggestion *Suggestion
}

// Size returns the bytes of the table and of its indexes.
func (t *Table) Size() int64 { return t.Bytes + t.IndexBytes }

// Query says which tables to list.
type Query struct {
	Order         Order
	UncoveredOnly bool
	// Brief leaves out what only reading more than the catalog shows.
	Brief bool
	// After is the last table of the previous page; zero for the first page.
	After Key
	Size  int
}

// Page is a page of a list.
type Page struct {
	Tables []*Table
	// Next is the last table of the page if there are more, or else zero.
	Next Key
	// SampleTime is when the tables were last sampled; nil if they never were.
	SampleTime *time.Time
}

// List returns a page of the tables.
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
		t.Suggestion = l.Limits.suggest(t, covered, names[t.Name], grown.Now)
	}
	return p, nil
}

// cover returns which tables tasks cover: none in a database that has no table of Campaign. It fails if several schemas
// have Campaign's tables, because then all would seem to be uncovered.
func (l *Lister) cover(ctx context.Context) (covered, error) {
	c, err := l.Cover(ctx)
	if errors.Is(err, campaign.ErrNotCampaign) && errors.Unwrap(err) == nil {
		return covered{}, nil
	}
	return covered{c}, err
}

// measure returns all tables, without details.
func (l *Lister) measure(ctx context.Context, c covered) ([]*Table, *growth.Growth, error) {
	now, err := store.Now(ctx, l.Pool)
	if err != nil {
		return nil, nil, err
	}
	found, err := inventory.Measure(ctx, l.Pool, l.Masks)
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

// addDetails adds the details of a page's tables.
func (l *Lister) addDetails(ctx context.Context, page []*Table, now time.Time) error {
	var (
		tables []*inventory.Table
		names  []string
	)
	for _, t := range page {
		tables, names = append(tables, t.Table), append(names, t.Name)
	}
	details, err := inventory.Read(ctx, l.Pool, tables)
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
