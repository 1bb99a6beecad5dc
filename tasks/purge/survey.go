package purge

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Candidates is the rows of a table that a sweep will take, for a reading that counts those of several.
type Candidates struct {
	Condition
	// Except are the places of claims, before this one, whose rows it will not find.
	Except []int
	// Date is SQL of the row's date, and Key its integer key; empty: there is none.
	Date, Key string
	// Paired are the rows that it takes with its own; nil: none.
	Paired *PairedCandidates
}

// PairedCandidates is the rows of a table that share their ids with those of a claim.
type PairedCandidates struct {
	Paired
	// Except are the rows of that table that will be gone by then.
	Except []Condition
	// Before are claims of other tables that will have taken theirs by then, in the columns of the same names.
	Before []PairedSource
}

// PairedSource is the rows of a table that a claim takes, but for some that will be gone by then.
type PairedSource struct {
	Relation, ID string
	Condition
	Except []Condition
}

// Tally is what a reading has found of a claim.
type Tally struct {
	// Rows is how many rows there are, Paired how many are paired with them, and Windows in how many parts of the
	// table.
	Rows, Paired, Windows int64
	// Oldest and Newest are among the dates; nil: there is none.
	Oldest, Newest *time.Time
	// Keys are some of the keys, and PairedKeys some of those of the paired rows.
	Keys, PairedKeys []int64
}

// SampleSize is how many keys a tally has at most.
const SampleSize = 5

// Add adds what was found elsewhere.
func (t *Tally) Add(more Tally) {
	t.Rows, t.Paired, t.Windows = t.Rows+more.Rows, t.Paired+more.Paired, t.Windows+more.Windows
	if more.Oldest != nil && (t.Oldest == nil || more.Oldest.Before(*t.Oldest)) {
		t.Oldest = more.Oldest
	}
	if more.Newest != nil && (t.Newest == nil || more.Newest.After(*t.Newest)) {
		t.Newest = more.Newest
	}
	t.Keys = append(t.Keys, more.Keys[:min(len(more.Keys), SampleSize-len(t.Keys))]...)
	t.PairedKeys = append(t.PairedKeys, more.PairedKeys[:min(len(more.PairedKeys), SampleSize-len(t.PairedKeys))]...)
}

// CountCandidates reads a table once and counts the rows of several claims, changing and locking nothing. After each window it
// calls found with what that one has of each. While the server is otherwise idle, as many windows are read at once as
// there are workers.
func (e *Engine) CountCandidates(
	ctx context.Context,
	name, relation string,
	claims []Candidates,
	found func(ctx context.Context, window []Tally) error,
) error {
	return e.open(ctx, []Sweep{{Name: name, Relation: relation}}, func(sw *sweep) error {
		end, _, err := sw.end(ctx)
		if err != nil {
			return err
		}
		v := surveyOf(claims)
		if err := sw.session.forReading(ctx); err != nil {
			return err
		}
		readers := []*sweep{sw}
		defer func() {
			for _, r := range readers[1:] {
				r.session.end(ctx)
			}
		}()
		width := int64(countBlocks)
		for first := int64(0); first < end; {
			if err := sw.Wait(ctx); err != nil {
				return err
			}
			n := 1
			if e.throttler.Idle() {
				n = max(e.Workers, 1)
			}
			if readers, err = sw.readers(ctx, readers, n); err != nil {
				return err
			}
			windows := make([][]Tally, min(n, len(readers)))
			each := min(width, (end-first+int64(len(windows))-1)/int64(len(windows))) // the last ones end together
			begun := time.Now()
			group, reading := errgroup.WithContext(ctx)
			for i := range windows {
				from := min(first+int64(i)*each, end)
				group.Go(func() (err error) {
					windows[i], err = v.window(reading, readers[i], blocks.bounds(from, min(from+each, end)))
					return err
				})
			}
			if err := group.Wait(); err != nil {
				return err
			}
			for _, tallies := range windows {
				v.sampled(tallies)
				if err := found(ctx, tallies); err != nil {
					return err
				}
			}
			first += int64(len(windows)) * each
			width = nextWidth(width, time.Since(begun))
		}
		return nil
	})
}

// A window should be read in less than a second: VACUUM removes nothing that has been deleted since its snapshot. Wide
// ones cost less per row, since each is planned and compiled.
const (
	longReading = time.Second
	widest      = 4 * countBlocks
)

// nextWidth is how many blocks the next window should have after one that took some time.
func nextWidth(width int64, took time.Duration) int64 {
	switch {
	case took > longReading:
		return max(width/2, blocks.first)
	case took < longReading/3:
		return min(2*width, widest)
	}
	return width
}

// spare is how many connections a reading leaves to others.
const spare = 3

// readers are some, with more up to a number if there are connections for them.
func (sw *sweep) readers(ctx context.Context, some []*sweep, n int) ([]*sweep, error) {
	for len(some) < n && sw.Pool.Stat().AcquiredConns()+spare < sw.Pool.Stat().MaxConns() {
		session, err := sw.Engine.session(ctx)
		if err != nil {
			return some, err
		}
		some = append(some, &sweep{Engine: sw.Engine, Sweep: sw.Sweep, session: session, axis: blocks})
		if err := session.forReading(ctx); err != nil {
			return some, err
		}
	}
	return some, nil
}
