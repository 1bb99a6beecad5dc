package execute

import (
	"context"
	"reflect"
	"slices"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// unheard is the journal of what a dry run finds by the options as they are stored: it is told beside the rest, table
// by table.
type unheard struct{ Journal }

// Count counts nothing, but may stop the run.
func (u *unheard) Count(ctx context.Context, _ purge.Delta) error { return u.Proceed(ctx) }

// Log says nothing: what is left undone is said once.
func (u *unheard) Log(context.Context, severity.Level, ...string) error { return nil }

// History is nothing: guards are judged by the options that are supposed.
func (u *unheard) History(context.Context) (*History, error) { return nil, nil }

// compare adds what a task would do by the options as they are stored.
func (o *Outcome) compare(now Outcome) {
	if o.Planned == nil || now.Planned == nil {
		return
	}
	type of struct {
		table  string
		action Action
	}
	before := map[of]int64{}
	for _, p := range now.Planned.Preview {
		before[of{p.Table, p.Action}] = p.Rows + p.Tables
	}
	all := o.Planned.Preview
	for i, p := range all {
		n := before[of{p.Table, p.Action}]
		all[i].RowsNow = &n
		delete(before, of{p.Table, p.Action})
	}
	for _, p := range now.Planned.Preview {
		if n, alone := before[of{p.Table, p.Action}]; alone {
			all = append(
				all,
				TablePreview{Table: p.Table, Action: p.Action, RowsTotal: p.RowsTotal, RowsNow: &n, Rule: p.Rule},
			)
		}
	}
	o.Planned.Preview = all
}

// supposed adds to the claims of a reading those on the same relation by the options that the dry run supposes, and
// returns these, with their places among all: a claim that is the same by both is there once. What fails here fails
// again when their own task asks.
func (t *task) supposed(
	ctx context.Context,
	relation string,
	claims []purge.Candidates,
) (some []claimed, places []int, all []purge.Candidates) {
	s := t.supposing
	if s == nil {
		return nil, nil, claims
	}
	related, err := s.related(relation)
	if err != nil {
		return nil, nil, claims
	}
	every, err := s.claims(ctx, func(j plan.Job) bool { return related[j.Relation] })
	if err != nil {
		return nil, nil, claims
	}
	some, more := together(every, relation)
	for _, c := range more {
		for i, b := range c.Except {
			c.Except[i] = places[b]
		}
		slices.Sort(c.Except)
		place := slices.IndexFunc(claims, func(other purge.Candidates) bool { return reflect.DeepEqual(other, c) })
		if place < 0 {
			place = len(claims)
			claims = append(claims, c)
		}
		places = append(places, place)
	}
	return some, places, claims
}
