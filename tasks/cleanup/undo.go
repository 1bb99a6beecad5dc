package cleanup

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// keeps returns for how long the task keeps what it deletes; 0 if it keeps nothing, as on mid-sourcing servers.
func (a *Attempt) keeps() time.Duration {
	if a.Task.Undo == nil {
		return 0
	}
	return *a.Task.Undo
}

// checkUndo fails, before anything is deleted, if the task is to keep what it deletes and cannot. It logs what is not
// kept.
func (t *executedTask) checkUndo(ctx context.Context) error {
	if t.keeps() == 0 {
		return nil
	}
	if err := t.can().Ready(ctx); err != nil {
		return err
	}
	var said []string
	notKept := func(table, why string) {
		m := message.NoUndo.With("table", table, "problem", why)
		if !slices.Contains(said, m.Text) { // the partitions of a table have the same name
			said = append(said, m.Text)
			t.Log(ctx, m)
		}
	}
	for _, j := range t.Jobs {
		switch why := j.NotUndoable(); {
		case j.Set != nil:
			notKept(j.Table.Name, "its rows are updated")
		case j.NoTIDs:
			notKept(j.Table.Name, "its rows, or rows that its rule reads, are on another server")
		case why != "":
			return notUndoable(t.Task, j.Name, why)
		}
		for _, a := range j.Affected {
			if j.Set == nil && a != j.Table && a.Location != "" {
				return notUndoable(t.Task, j.Name, fmt.Sprintf("rows of %s, on another server, go with its rows", a.Name))
			}
		}
	}
	if set := t.Task.ParentSet; set != nil && set.MidSourced && len(t.run.Config.MidSourcing.Databases) > 0 {
		notKept(t.Plan.Parents.Table.Name, "their copies on mid-sourcing servers are deleted there")
	}
	if t.Task.RollUp != nil {
		notKept(t.Task.RollUp.Table, "its rows are replaced by their sums")
	}
	return nil
}

func notUndoable(t rules.Task, table, why string) error {
	help := fmt.Sprintf("run the task without undo (cleanupd run --task %s --undo 0)", t.Name)
	if t.Kind == rules.Policy {
		help += ", or set undo: 0s in the policy"
	}
	return &failure.Refusal{
		Reason:   failure.ReasonNotUndoable,
		Metadata: map[string]string{"table": table},
		Message:  fmt.Sprintf("%s: the trash cannot keep what goes with its rows: %s; %s", table, why, help),
	}
}

// keep makes a sweep move its rows to the trash, if the task keeps them.
func (t *executedTask) keep(ctx context.Context, s *purge.Sweep) error {
	if t.keeps() == 0 || s.Set != nil || s.NoTIDs {
		return nil
	}
	if err := t.can().Put(ctx, t.Task.Name, t.keeps(), s); err != nil {
		return err
	}
	relation := s.Relation
	s.Trash.Move = func(ctx context.Context, tx pgx.Tx, rows int64) error {
		return t.can().Move(ctx, tx, t.Task.Name, t.keeps(), trash.Dropped{Kind: trash.Partition, Name: relation, Rows: rows})
	}
	return nil
}

func (t *executedTask) can() *trash.Can {
	return &trash.Can{Pool: t.Binder.Pool, Run: t.run.Config.ID}
}

// countAll counts the rows of work tables, before these are locked, since that may take long.
func countAll(ctx context.Context, tx pgx.Tx, tables []campaign.WorkTable) (rows []int64, err error) {
	rows = make([]int64, len(tables))
	for i, w := range tables {
		if w.View {
			continue
		}
		count, args := "SELECT count(*) FROM "+w.Quoted(), []any{}
		if w.ByFunction {
			count, args = "SELECT "+campaign.CountFunction+"($1::text::regclass)", []any{w.Quoted()}
		}
		if err := tx.QueryRow(ctx, count, args...).Scan(&rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// moveAll moves work tables to the trash, in the transaction in which they would be dropped.
func (t *executedTask) moveAll(ctx context.Context, tx pgx.Tx, tables []campaign.WorkTable, rows []int64) error {
	for i, w := range tables {
		dropped := trash.Dropped{Kind: trash.Table, Name: w.Quoted(), Rows: rows[i], ByFunction: w.ByFunction}
		switch {
		case len(w.Partitions) > 0:
			return notUndoable(t.Task, w.Name, "its partitions would stay where they are")
		case w.View:
			dropped.Kind = trash.View
			if w.ByFunction {
				t.Log(ctx, message.NoUndo.With("table", w.Name, "problem",
					"only its owner can make the view again, of which the trash keeps the definition"))
			}
		}
		if err := t.can().Move(ctx, tx, t.Task.Name, t.keeps(), dropped); err != nil {
			return err
		}
	}
	return nil
}

// trashGate keeps the trash from becoming larger than it may, and from being published. It looks once a second.
type trashGate struct {
	pool     campaign.Querier
	maxBytes int64
	mu       sync.Mutex
	looked   time.Time
	bytes    int64
}

// open fails if the trash is full or published.
func (g *trashGate) open(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.looked) > time.Second {
		if err := g.pool.QueryRow(ctx, trash.BytesSQL).Scan(&g.bytes); err != nil {
			return err
		}
		if err := trash.Unpublished(ctx, g.pool); err != nil {
			return err
		}
		g.looked = time.Now()
	}
	if g.bytes <= g.maxBytes {
		return nil
	}
	return &failure.Refusal{
		Reason:   failure.ReasonTrashFull,
		Metadata: map[string]string{"bytes": fmt.Sprint(g.bytes), "max_bytes": fmt.Sprint(g.maxBytes)},
		Message: fmt.Sprintf("the trash has %s, and may have %s: purge some of it (cleanupd trash purge), raise "+
			"--undo-max-bytes, or run without undo", humanize.IBytes(uint64(g.bytes)),
			humanize.IBytes(uint64(g.maxBytes))),
	}
}
