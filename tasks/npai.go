package tasks

import (
	"context"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// npai, "n'habite pas à l'adresse indiquée": addresses that became valid since the last cleanup. Its After advances
// the lower bound for the next run, unless entries had to be left.
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
	Needs:   []Need{{"XtkOption", []string{"INSERT"}}},
	Options: []campaign.Option{campaign.LastCleanup},
	After: func(ctx context.Context, tx Tx, e *Env) error {
		if !e.Catalog.KeepsMoments() {
			e.log(ctx, Info, "table XtkOption, or a column of it, is missing, which keeps when the last cleanup was: the next run asks for all addresses again")
			return nil
		}
		return campaign.StoreMoment(ctx, tx, e.Catalog, campaign.LastCleanup, e.Now)
	},
}
