package figures

import (
	"context"
	"time"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
)

// JudgeItems judges how many items a task on another database would delete. before is how many of them earlier
// tasks of a dry run would delete.
func JudgeItems(
	ctx context.Context, a *pipeline.Attempt, o external.Task, run string, before int64, showRefused bool,
) ([]guard.Trip, error) {
	items := guard.Items{
		Table:       a.Candidates.Table,
		Total:       a.Candidates.Total,
		Number:      int64(len(a.Candidates.Items)),
		Before:      before,
		Options:     a.Options(),
		ShowRefused: showRefused,
	}
	if a.History.MaxSharePercent > 0 {
		var err error
		if items.Recent, err = o.RecentlyDeleted(ctx, run, guard.SharePeriod); err != nil {
			return nil, err
		}
	}
	var former time.Time
	if former, items.CutoffMoved = a.MovedFast()[a.Task.Name]; items.CutoffMoved {
		for _, i := range a.Candidates.Items {
			if !i.Date.Before(former) {
				items.SinceCutoff++
			}
		}
	}
	return a.History.JudgeItems(items), nil
}

func EverythingOnHold(c *external.Candidates) message.Message {
	return message.EverythingOnHold.With("rows", len(c.Items), "table", c.Table)
}
