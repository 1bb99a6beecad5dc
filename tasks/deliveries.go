package tasks

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// stopDelivery stops an active delivery before anything of it is deleted. tsLastModified is left alone, since the
// delete date may be read from it.
var stopDelivery = Step{
	On: table("NmsDelivery"), OfSet: true,
	Rules:  []Rule{{Where: "iState IN (51, 55, 61, 62, 71, 72, 75)"}},
	Update: []Assignment{{"iState", "85"}},
}

// deliverySteps delete everything that belongs to a delivery, and the delivery last. Other tables with an iDeliveryId are left
// alone: there it means something else.
var deliverySteps = []Step{
	stopDelivery,
	{On: table("NmsCouponValue"), Message: "iMessageId", ByKey: "iMessageId"}, // before the logs
	{On: only(propositionTables, knowMessage), Message: "iBroadLogId", Limit: 20_000},
	{On: table("NmsDlvExclusion"), Link: "iDeliveryId"},
	{On: deliveryAndExclusionLogs, Link: "iDeliveryId", Limit: 20_000},
	{On: only(propositionTables, knowDelivery), Link: "iDeliveryId", Limit: 20_000},
	{On: trackingLogTables, Link: "iDeliveryId", Limit: 20_000},
	{On: tables("NmsWebTrackingLog", "NmsTrackingStats"), Link: "iDeliveryId", Limit: 20_000},
	{On: table("NmsDeliveryPart"), Link: "iDeliveryId", Limit: 500_000},
	{On: tables("NmsMirrorPageInfo", "NmsMirrorPageSearch"), Link: "iDeliveryId", Limit: 20_000},
	{On: table("XtkJobLog"), Link: "iJobId", Limit: 20_000}, // a delivery is a job
	{On: tables("NmsAttachments", "NmsProviderMsgId", "NmsDeliveryStat", "NmsDeliveryLogStats", "NmsTrackingUrl"), Link: "iDeliveryId"},
	{On: table("NmsDelivery"), OfSet: true, Also: recordLeftovers},
}

var deliveries = Task{
	Name:        "deliveries",
	Title:       "Deleted deliveries",
	Description: "Deliveries marked as deleted or recycled for longer than their delay, with all that the published rules name, on their mid-sourcing servers first. Seed members, relations to assets and simulations, snapshots, validation logs and volumes stay.",
	Set: &Set{Parent: "NmsDelivery", Key: "iDeliveryId", Rules: []Rule{
		{Where: "iDeleteStatus <> 0 AND COALESCE(tsDelete, tsLastModified) < @cutoff", Option: campaign.RecycledDeliveryPurge},
	}},
	Prepare: purgeMidSourced,
	Steps:   deliverySteps,
}

// knowMessage reports whether the rows of a table know their delivery only by the log of a message: so do propositions in
// version 6.
func knowMessage(t *campaign.Table) bool { return !t.Has("iDeliveryId") && t.Has("iBroadLogId") }

func knowDelivery(t *campaign.Table) bool { return !knowMessage(t) }

// ofMessage is the condition that the log whose id is in a column is that of a message of a delivery of the set.
func (c *condition) ofMessage(ctx context.Context, column string) (string, error) {
	if !c.table.Has(column) {
		c.plan.note(Info, "%s has no column %s: skipped", c.table.Name, column)
		return "", nil
	}
	logs, err := deliveryAndExclusionLogs(ctx, c.env, c.plan)
	if err != nil {
		return "", err
	}
	for _, log := range logs {
		c.reads(log)
	}
	of, err := c.linked(ctx, "l.iDeliveryId")
	if err != nil {
		return "", err
	}
	var sides, parents []string
	for _, log := range logs {
		from := fmt.Sprintf("%s AS l WHERE l.iBroadLogId = r.%s", log.Quoted(), column)
		parents = append(parents, "SELECT l.iDeliveryId FROM "+from)
		if c.apart() {
			sides = append(sides, fmt.Sprintf("r.%s IN (SELECT l.iBroadLogId FROM %s AS l WHERE %s)", column, log.Quoted(), of))
			continue
		}
		// OFFSET keeps PostgreSQL from reading all logs of the set for each batch; with IS TRUE it hashes the set's ids once per batch.
		sides = append(sides, fmt.Sprintf("EXISTS (SELECT FROM %s AND (%s) IS TRUE OFFSET 0)", from, of))
	}
	if sides == nil {
		return "", nil
	}
	c.parents = strings.Join(parents, " UNION ALL ")
	return fmt.Sprintf("r.%s <> 0 AND (%s)", column, strings.Join(sides, " OR ")), nil
}
