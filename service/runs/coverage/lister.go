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

type Lister struct {
	Pool *pgxpool.Pool
	// Masks of work tables, which are listed by kind.
	Masks []inventory.Mask
	// Cover may fail with campaign.ErrNotCampaign.
	Cover  func(ctx context.Context) (explain.Coverage, error)
	Limits Limits
}

// A table of the database, or all work tables of a kind.
type Table struct {
	*inventory.Table
	growth.Rates
	// In the order of the pipeline.
	CoveredBy []string
	// Why work tables are retained.
	Retained []Retained
	// The rest is empty in a brief list.
	inventory.Details
	History    []growth.Point
	Suggestion *Suggestion
}

// Size includes indexes, in bytes.
func (t *Table) Size() int64 { return t.Bytes + t.IndexBytes }

type Query struct {
	Order         Order
	UncoveredOnly bool
	// Leave out what only reading more than the catalog shows.
	Brief bool
	// Last table of the previous page; zero for the first page.
	After Key
	Size  int
}

type Page struct {
	Tables []*Table
	// Last table of the page if there are more, or else zero.
	Next Key
	// When the tables were last sampled; nil: never.
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
		t.Suggestion = l.Limits.suggest(t, covered, names[t.Name], grown.Now)
	}
	return p, nil
}

// cover returns nothing for a database that has no table of Campaign. It fails if several schemas have Campaign's
// tables, because then all would seem to be uncovered.
func (l *Lister) cover(ctx context.Context) (covered, error) {
	c, err := l.Cover(ctx)
	if errors.Is(err, campaign.ErrNotCampaign) && errors.Unwrap(err) == nil {
		return covered{}, nil
	}
	return covered{c}, err
}

// measure leaves out details.
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
