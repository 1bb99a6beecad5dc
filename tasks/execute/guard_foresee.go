package execute

import (
	"context"
	"slices"
)

// foreseeGuards adds the guards that would trip to what the task would do.
func (t *task) foreseeGuards(ctx context.Context) error {
	if t.history == nil {
		return nil
	}
	g := t.guarded(t.plan.Jobs, t.preview.worked[t.plan.Task.Name])
	g.found = map[string]int64{}
	var masks, dropped []string
	for _, p := range t.preview.tables {
		if p.Action == Drop {
			masks, dropped = append(masks, p.Table), append(dropped, p.dropped...)
		} else {
			g.found[p.Table] += p.Rows
		}
	}
	var trips []Trip
	for _, table := range g.tables() {
		more, err := g.judge(ctx, table)
		if err != nil {
			return err
		}
		trips = append(trips, more...)
	}
	if mask := t.mask(); mask != "" {
		more, err := t.judgeDrops(ctx, mask, dropped)
		if err != nil {
			return err
		}
		trips = append(trips, more...)
	}
	for _, l := range t.history.Latched { // it trips though nothing goes by now
		shown := slices.ContainsFunc(
			trips,
			func(shown Trip) bool { return shown.Guard == l.Guard && shown.Table == l.Table },
		)
		if t.stands(l) && !shown {
			trips = append(trips, Trip{l.Guard, l.Table, 0, l.Most})
		}
	}
	for _, trip := range trips {
		action, table := Delete, trip.Table
		if trip.Guard == GuardTables || trip.Guard == GuardBytes {
			action = Drop
			if len(masks) > 0 {
				table = masks[0]
			}
		} else if t.preview.has(table, Update) && !t.preview.has(table, Delete) {
			action = Update
		}
		p := t.preview.at(table, action, "")
		p.Guards = append(p.Guards, trip)
	}
	t.preview.took(g.found)
	return nil
}

// has reports whether the task at work would do something to a table.
func (p *preview) has(table string, action Action) bool {
	return slices.ContainsFunc(p.tables, func(t *TablePreview) bool { return t.Table == table && t.Action == action })
}

// takenOf is how many rows of a table the tasks before would have taken, in a dry run.
func (p *preview) takenOf(table string) int64 {
	if p == nil {
		return 0
	}
	return p.taken[table]
}

// took adds what a task would take.
func (p *preview) took(rows map[string]int64) {
	for table, n := range rows {
		p.taken[table] += n
	}
}
