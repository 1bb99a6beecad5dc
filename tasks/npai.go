package tasks

import (
	"context"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// npai, "n'habite pas à l'adresse indiquée": addresses found valid again since the last cleanup. Its After moves
// the lower bound on, so that the next run asks only for what came since; not past entries that had to be left.
var npai = Task{
	Name:        "npai",
	Title:       "Addresses found valid",
	Description: "Entries of the quarantine table (NmsAddress) that became valid since the last cleanup.",
	Steps: []Step{{
		On: table("NmsAddress"),
		Rules: []Rule{
			{Where: "iStatus = 2 AND tsLastModified < @now AND tsLastModified >= COALESCE(@last_cleanup, '-infinity')"},
		},
	}},
	Options: []campaign.Option{campaign.LastCleanup},
	After: func(ctx context.Context, tx Tx, e *Env) error {
		if e.Catalog.Table("XtkOption") == nil {
			return nil // nowhere to keep it: without a lower bound the next run finds the same and more
		}
		return campaign.StoreMoment(ctx, tx, e.Catalog, campaign.LastCleanup, e.Now)
	},
}
