package tasks

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

var statistics = Task{
	Name:        "statistics",
	Title:       "Statistics and storage",
	Description: "Deletes nothing: vacuums and analyzes the tables after the cleanup, as option XtkCleanup_NoStats says. The tasks behind it then do the same with what they empty.",
	Options:     []campaign.Option{campaign.NoStats},
	Do:          optimizeStorage,
}

// optimizeStorage goes table by table, so that there is progress to show, beginning with those that the run deleted most from,
// and with SKIP_LOCKED, so that nothing waits.
func optimizeStorage(ctx context.Context, e *Env) (bool, error) {
	mode, err := e.Options.Statistics()
	if err != nil {
		e.log(ctx, Warning, err.Error())
	}
	if mode == campaign.NoStatistics {
		e.log(ctx, Info, "Option 'XtkCleanup_NoStats' is set to '1'")
		return true, nil
	}
	emptied, err := e.journal.Emptied(ctx, "")
	if err != nil {
		return false, fmt.Errorf("list the tables: %w", err)
	}
	tables, err := e.storages(ctx, true, emptied, true)
	if err != nil {
		return false, err
	}
	others, err := e.storages(ctx, false, nil, true)
	if err != nil {
		return false, err
	}
	if len(others) > 0 {
		e.log(ctx, Info, fmt.Sprintf("%d tables of %s belong to another role, which alone may vacuum them: left to autovacuum", len(others), e.Catalog.Schema))
	}
	if !e.DryRun {
		return true, e.vacuum(ctx, mode, tables)
	}
	commands := map[string]int{}
	for _, t := range tables {
		commands[e.command(t, mode)]++
	}
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		e.log(ctx, Info, fmt.Sprintf("would run %s on %d tables", command, commands[command]))
	}
	return true, nil
}
