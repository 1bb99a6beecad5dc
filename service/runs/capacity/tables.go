package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

// masks match the names of work tables, which are sampled and listed by kind.
var masks = insight.Masks(tasks.Pipeline)

type Lister struct {
	Pool *pgxpool.Pool
	// Cover may fail with campaign.ErrNotCampaign.
	Cover  func(ctx context.Context) (insight.Coverage, error)
	Limits Limits
}

// Table is a table of the database, or all work tables of a kind.
type Table struct {
	*insight.Table
	Rates
	// CoveredBy lists tasks in the order of the pipeline.
	CoveredBy []string
	// Retained says why work tables are retained.
	Retained []Retained
	// Details, History and Suggestion are empty in a brief list.
	insight.Details
	History    []Point
	Suggestion *Suggestion
}

// Size returns the size in bytes, including indexes.
func (t *Table) Size() int64 { return t.Bytes + t.IndexBytes }

type Query struct {
	Order         Order
	UncoveredOnly bool
	// Brief leaves out details, history and suggestions.
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
func (l *Lister) measure(ctx context.Context, c covered) ([]*Table, *growth, error) {
	now, err := store.Now(ctx, l.Pool)
	if err != nil {
		return nil, nil, err
	}
	found, err := insight.Measure(ctx, l.Pool, masks)
	if err != nil {
		return nil, nil, err
	}
	grown, err := readGrowth(ctx, l.Pool, now)
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
	history, err := readHistory(ctx, l.Pool, names, now)
	if err != nil {
		return err
	}
	for i, t := range page {
		t.Details, t.History = details[i], history[t.Name]
	}
	return nil
}

type Order string

// Lists are in descending order, except by name.
const (
	ByName   Order = "NAME"
	ByBytes  Order = "BYTES"
	ByGrowth Order = "GROWTH"
	ByRows   Order = "ROWS"
)

// Key is the position of a table in a list. It remains valid if tables change or are dropped.
type Key struct {
	Order Order
	// Value is the list's sort key; unknown values come last.
	Value   int64
	Unknown bool
	Name    string
}

func (o Order) key(t *Table) Key {
	k := Key{Order: o, Name: t.Name}
	switch o {
	case ByBytes:
		k.Value = t.Size()
	case ByRows:
		k.Value = t.Rows
	case ByGrowth:
		if k.Unknown = t.Week == nil; !k.Unknown {
			k.Value = *t.Week
		}
	}
	return k
}

func (k Key) compare(other Key) int {
	if k.Unknown != other.Unknown {
		if k.Unknown {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(other.Value, k.Value), strings.Compare(k.Name, other.Name))
}

// cut returns the page after q.After. next is the position of the page's last table if more tables follow.
func (q Query) cut(all []*Table) (page []*Table, next Key) {
	for _, t := range all {
		if q.UncoveredOnly && len(t.CoveredBy) > 0 {
			continue
		}
		if q.After == (Key{}) || q.Order.key(t).compare(q.After) > 0 {
			page = append(page, t)
		}
	}
	slices.SortFunc(page, func(a, b *Table) int { return q.Order.key(a).compare(q.Order.key(b)) })
	if len(page) > q.Size {
		page = page[:q.Size]
		next = q.Order.key(page[q.Size-1])
	}
	return page, next
}

// Retained are the work tables that are retained for the same reason.
type Retained struct {
	Reason string
	Tables int64
	Bytes  int64 // with indexes
}

// maxReasons is how many reasons are listed; the remaining ones are summed up in one entry.
const maxReasons = 50

type covered struct{ insight.Coverage }

// of returns the tasks that cover a table, and the work tables that are retained, by reason, with the most bytes
// first.
func (c covered) of(t *insight.Table) (tasks []string, retained []Retained) {
	if t.Kind != insight.WorkTables {
		return c.Tasks[t.Quoted()], nil
	}
	if t.Schema != c.Schema {
		return nil, nil
	}
	dropped := c.WorkTables[t.Base]
	byReason := map[string]Retained{}
	for name, figures := range t.Members {
		reason := dropped.Retained[name]
		if reason == "" {
			continue
		}
		r := byReason[reason]
		byReason[reason] = Retained{reason, r.Tables + 1, r.Bytes + figures.Bytes + figures.IndexBytes}
	}
	for _, r := range byReason {
		retained = append(retained, r)
	}
	slices.SortFunc(retained, func(a, b Retained) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Tables, a.Tables),
			strings.Compare(a.Reason, b.Reason))
	})
	return dropped.Tasks, shorten(retained)
}

func shorten(retained []Retained) []Retained {
	if len(retained) <= maxReasons {
		return retained
	}
	rest := Retained{Reason: fmt.Sprintf("%d other reasons", len(retained)-maxReasons)}
	for _, r := range retained[maxReasons:] {
		rest.Tables, rest.Bytes = rest.Tables+r.Tables, rest.Bytes+r.Bytes
	}
	return append(slices.Clone(retained[:maxReasons]), rest)
}

// Uncovered returns the tables for which a Lister with SuggestAll suggests a policy. It uses nothing that the service
// has stored.
func Uncovered(
	ctx context.Context, pool *pgxpool.Pool, of insight.Coverage, now time.Time,
) (found []*Table, err error) {
	c := covered{of}
	measured, err := insight.Measure(ctx, pool, nil)
	if err != nil {
		return nil, err
	}
	details, err := insight.ReadDetails(connection.InZone(ctx, c.Zone), pool, measured.Tables)
	if err != nil {
		return nil, err
	}
	var all []*Table
	for i, t := range measured.Tables {
		listed := &Table{Table: t, Details: details[i]}
		listed.CoveredBy, _ = c.of(t)
		all = append(all, listed)
	}
	names := c.policyNames(all)
	for _, t := range all {
		t.Suggestion = DefaultLimits.suggest(t, c, names[t.Name], true, now)
		if t.Suggestion != nil {
			found = append(found, t)
		}
	}
	return found, nil
}
