package tasks

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

var oldDeliveryLogs = []Rule{{Where: "tsLastModified < @cutoff", Option: campaign.BroadLogPurge}}

var deliveryLogs = Task{
	Name:        "delivery-logs",
	Title:       "Delivery logs",
	Description: "Delivery and exclusion logs, and the message ids of providers (NmsProviderMsgId), older than the delay of delivery logs.",
	Steps: []Step{
		{On: deliveryAndExclusionLogs, Rules: oldDeliveryLogs, Unless: neededByDeliveries},
		{On: deliveryLogFamily.included, Rules: oldDeliveryLogs},
		{
			On:    table("NmsProviderMsgId"),
			Rules: []Rule{{Where: "tsCreated < @cutoff", Option: campaign.BroadLogPurge}},
		},
	},
}

// neededByDeliveries is the condition that a log is of a delivery that the task deliveries had to leave in this run, and that a coupon
// or proposition is known to be that delivery's by this log alone: the next run must find it.
func neededByDeliveries(ctx context.Context, c *condition) (string, error) {
	e := c.env
	if !e.keptDeliveries || e.DryRun || c.table.Missing("iBroadLogId", "iDeliveryId") != nil {
		return "", nil
	}
	notes := &plan{} // the task deliveries has told them
	left, err := e.fix(ctx, notes, *deliveries.Set)
	if err != nil || left == nil {
		return "", err
	}
	if err := left.read(ctx, e.Pool); err != nil || len(left.ids) == 0 {
		return "", err
	}
	var needed []string
	for _, step := range deliverySteps {
		if step.Message == "" {
			continue
		}
		tables, err := step.On(ctx, e, notes)
		if err != nil {
			return "", err
		}
		for _, t := range tables {
			if !t.Has(step.Message) {
				continue
			}
			c.reads(t)
			if c.apart() {
				needed = append(needed, fmt.Sprintf("r.iBroadLogId IN (SELECT m.%s FROM %s AS m)", step.Message, t.Quoted()))
			} else {
				needed = append(needed, fmt.Sprintf("EXISTS (SELECT FROM %s AS m WHERE m.%s = r.iBroadLogId)", t.Quoted(), step.Message))
			}
		}
	}
	if needed == nil {
		return "", nil
	}
	return fmt.Sprintf("r.iDeliveryId = ANY (%s) AND (%s)", c.bind(left.ids, "bigint[]"), strings.Join(needed, " OR ")), nil
}
