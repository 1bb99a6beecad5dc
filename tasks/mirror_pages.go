package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// needsPages is the rule that a row belongs to a delivery that has mirror pages.
var needsPages = []Rule{{Where: "EXISTS (SELECT FROM {NmsDelivery} d WHERE d.iDeliveryId = r.iDeliveryId AND d.iNeedMirrorPage <> 0)"}}

var mirrorPages = Task{
	Name:        "mirror-pages",
	Title:       "Mirror pages",
	Description: "Mirror pages (NmsMirrorPageInfo, NmsMirrorPageSearch) of deliveries whose web validity is over.",
	Set: &Set{Parent: "NmsDelivery", Key: "iDeliveryId", Rules: []Rule{
		{Where: "iWebResPurged = 0 AND tsWebValidity < @now AND iNeedMirrorPage IS NOT NULL"},
	}},
	Steps: []Step{
		{On: tables("NmsMirrorPageInfo", "NmsMirrorPageSearch"), Link: "iDeliveryId", Rules: needsPages},
		{On: table("NmsDelivery"), OfSet: true, Update: []Assignment{{"iWebResPurged", "1"}}, Also: logPurgedPages},
	},
}

// logPurgedPages writes one entry of the job log for each delivery that had pages, together with the flag that they have been
// purged. The flag does not depend on the entry: one that cannot be written is reported.
func logPurgedPages(ctx context.Context, c *condition) (*alsoSQL, error) {
	log := c.env.Catalog.Table("XtkJobLog")
	if log == nil || !log.Has("iJobLogId", "iJobId", "sMessage", "tsLog") {
		c.plan.note(Info, "table XtkJobLog, or a column of it, is missing: no entry is written")
		return nil, nil
	}
	c.env.needs(c.plan, log, "INSERT")
	ids, err := campaign.NewIDs(ctx, c.env.Pool, c.env.Catalog, log, "iJobLogId")
	if errors.Is(err, campaign.ErrNoSequence) {
		c.plan.note(Warning, "no entry of the job log is written: %v", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &alsoSQL{
		what:      "entries of the job log",
		returning: "r.iDeliveryId AS delivery, r.iNeedMirrorPage AS pages",
		sql: fmt.Sprintf("INSERT INTO %s (iJobLogId, iJobId, sMessage, tsLog) SELECT %s, gone.delivery, 'Mirror pages purged', %s FROM gone WHERE gone.pages <> 0",
			log.Quoted(), ids, c.bind(c.env.Now, "timestamptz")),
	}, nil
}
