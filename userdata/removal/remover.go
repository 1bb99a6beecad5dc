package removal

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/report"
)

// Remover removes rows in one transaction; in a dry run, it only counts the rows that it would delete.
type Remover struct {
	tx  *forms.Transaction
	dry bool
	// counted is what a dry run has already counted: the rows still exist, but must not be counted again.
	counted struct{ instances, tasks []int64 }
	// sessions are those whose documents were removed.
	sessions map[string]bool
}

func New(tx *forms.Transaction, dryRun bool) *Remover {
	return &Remover{tx: tx, dry: dryRun, sessions: map[string]bool{}}
}

// ErrKept means that a row was not deleted.
var ErrKept = errors.New("a trigger or rule of its table keeps it")

// Removal says what was removed of items, which are process instances or orphan tasks.
type Removal struct {
	Rows     map[int64]report.Rows // rows by item
	Sessions []report.Session      // the sessions of the items' documents
}

func newRemoval() *Removal { return &Removal{Rows: map[int64]report.Rows{}} }

func (g *Removal) add(table string, item, n int64) {
	if g.Rows[item] == nil {
		g.Rows[item] = report.Rows{}
	}
	g.Rows[item][table] += n
}

func (g *Removal) Items() (ids []int64) {
	for id, rows := range g.Rows {
		if len(rows) > 0 && id != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (g *Removal) Total() report.Rows {
	total := report.Rows{}
	for _, rows := range g.Rows {
		total.Add(rows)
	}
	return total
}

// remove deletes rows, or only counts them in a dry run. It returns how many there were, by key.
func (r *Remover) remove(
	ctx context.Context, table, condition, key string, a forms.Args,
) (counts map[string]int64, err error) {
	if r.dry {
		query := "SELECT %[1]s, count(*) FROM %[2]s AS r WHERE %[3]s GROUP BY %[1]s"
		counts, err = r.tx.Counts(ctx, fmt.Sprintf(query, key, table, condition), a)
	} else {
		counts, err = r.tx.Delete(ctx, table, condition, key, a)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", table, err)
	}
	return counts, nil
}

// removeItems removes rows whose key is an id, and counts them for the item that itemOf returns for the id.
func (r *Remover) removeItems(
	ctx context.Context, g *Removal, itemOf func(id int64) int64, table, condition, key string, a forms.Args,
) error {
	counts, err := r.remove(ctx, table, condition, key, a)
	for key, n := range counts {
		g.add(table, itemOf(forms.ID(key)), n)
	}
	return err
}

func itself(id int64) int64 { return id }

// lockClause returns the end of a query whose result decides which rows are deleted.
func (r *Remover) lockClause() string {
	if r.dry {
		return ""
	}
	return r.tx.LockClause()
}

func (r *Remover) lockReferences(ctx context.Context) error {
	if r.dry {
		return nil
	}
	return r.tx.LockReferences(ctx)
}
