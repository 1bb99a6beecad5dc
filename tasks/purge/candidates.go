package purge

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Candidates are the rows that a sweep would delete or update. CountCandidates counts those of several sweeps at
// once.
type Candidates struct {
	Where  sqlexpr.Expr
	Newest *Newest
	// Follows is set if Where follows foreign keys from all rows of a table, which takes long if there are many.
	Follows bool
	// Except has the indexes of earlier candidates. The sweep will not find their rows.
	Except []int
	// Date is the SQL of a row's date, and Key the row's integer key. Either may be empty.
	Date, Key string
	// Paired are the rows that the sweep deletes together with its own; nil if there are none.
	Paired *PairedCandidates
}

// PairedCandidates are rows of another table that share their ids with candidates. The sweeps in Before do not
// match rows that earlier ones will have deleted.
type PairedCandidates struct {
	Paired
	// Except matches rows of the other table that earlier sweeps will have deleted.
	Except []sqlexpr.Expr
}

type Tally struct {
	// Paired is how many rows are paired with Rows. Windows is the number of parts of the table that have such rows.
	Rows, Paired, Windows int64
	// Oldest and Newest are the first and the last date; nil without dates.
	Oldest, Newest   *time.Time
	Keys, PairedKeys []int64
}

const SampleSize = 5

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

// CountCandidates reads a table once for several sweeps. It neither changes nor locks anything. After each window
// it calls found with the tallies of that window. While the server is otherwise idle, it reads as many windows at
// once as there are workers.
func (e *Engine) CountCandidates(
	ctx context.Context, name, relation string, candidates []Candidates,
	found func(ctx context.Context, window []Tally) error,
) error {
	s := Sweep{Name: name, Relation: relation}
	if len(candidates) == 1 { // if there are several, they share one scan
		s.Where, s.Newest = candidates[0].Where, candidates[0].Newest
	}
	return e.open(ctx, []Sweep{s}, func(t *table) error {
		end, _, err := t.size(ctx)
		if err != nil {
			return err
		}
		if scan, err := t.groupScan(ctx); err != nil {
			return err
		} else if scan.Method != "" {
			tally, err := t.countByGroup(ctx, candidates[0])
			if err == nil {
				return found(ctx, []Tally{tally})
			}
			if !errors.Is(err, errSlow) {
				return err
			}
		}
		if slices.ContainsFunc(candidates, func(c Candidates) bool { return c.Follows }) {
			t.session.reads = followTimeout
		}
		if err := t.session.prepareReading(ctx); err != nil {
			return err
		}
		q := newCandidateQuery(relation, candidates)
		readers := []*table{t}
		defer func() {
			for _, r := range readers[1:] {
				r.session.end(ctx)
			}
		}()
		width := int64(countBlocks)
		for from := int64(0); from < end; {
			if err := e.Wait(ctx); err != nil {
				return err
			}
			n := 1
			if e.throttler.Idle() {
				n = max(e.Workers, 1)
			}
			if readers, err = t.addReaders(ctx, readers, n); err != nil {
				return err
			}
			windows := make([][]Tally, min(n, len(readers)))
			each := min(width, (end-from+int64(len(windows))-1)/int64(len(windows))) // the last ones end together
			begun := time.Now()
			group, reading := errgroup.WithContext(ctx)
			for i := range windows {
				first := min(from+int64(i)*each, end)
				window := blockAxis{}.window(0, first, min(first+each, end))
				group.Go(func() (err error) {
					windows[i], err = q.read(reading, readers[i], window)
					return err
				})
			}
			if err := group.Wait(); err != nil {
				return err
			}
			for _, tallies := range windows {
				q.trimKeys(tallies)
				if err := found(ctx, tallies); err != nil {
					return err
				}
			}
			from += int64(len(windows)) * each
			width = nextWidth(width, time.Since(begun))
		}
		return nil
	})
}

// A window should be read in less than maxReading, because VACUUM cannot remove rows that were deleted since the
// window's snapshot. Wide windows cost less per row, since PostgreSQL plans and compiles one statement for each
// window.
const (
	maxReading      = time.Second
	minReadingWidth = 32
	maxReadingWidth = 4 * countBlocks
)

func nextWidth(width int64, took time.Duration) int64 {
	switch {
	case took > maxReading:
		return max(width/2, minReadingWidth)
	case took < maxReading/3:
		return min(2*width, maxReadingWidth)
	}
	return width
}

const spareConns = 3

// addReaders opens further readers, up to n in total, while the pool has connections to spare.
func (t *table) addReaders(ctx context.Context, readers []*table, n int) ([]*table, error) {
	pool := t.engine.Pool
	for len(readers) < n && pool.Stat().AcquiredConns()+spareConns < pool.Stat().MaxConns() {
		session, err := t.engine.session(ctx)
		if err != nil {
			return readers, err
		}
		session.reads = t.session.reads
		readers = append(readers, &table{t.engine, session, t.sweep})
		if err := session.prepareReading(ctx); err != nil {
			return readers, err
		}
	}
	return readers, nil
}
