package tasks

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
)

// days15 is 15 days of 24 hours each.
const days15 = "@now - interval '360 hours'"

// Mass deliveries whose validity is over, and those stopped with much left to do; mid-sourced ones long over, or over
// at the last pull of their logs from an active server.
const (
	massDelivery       = "iDeleteStatus = 0 AND iIsModel = 0 AND iDeliveryMode = 1 AND "
	midSourcedDelivery = "iDeliveryMode = 4 AND iState IN (85, 95) AND tsLastModified > " + days15 + " AND "
)

var expiredDeliveries = Task{
	Name:        "expired-deliveries",
	Title:       "Expired deliveries",
	Description: "Deletes only parts of deliveries (NmsDeliveryPart); the pending logs of deliveries whose validity is over are cancelled, and these deliveries end.",
	Set: &Set{Parent: "NmsDelivery", Key: "iDeliveryId", Rules: []Rule{
		{Where: massDelivery + "iState >= 51 AND iState < 85 AND tsValidity < @now"},
		{Where: massDelivery + "iState = 85 AND tsLastModified > " + days15 + " AND iToDeliver::bigint - iProcessed >= 10000"},
		{Where: midSourcedDelivery + "tsValidity < " + days15},
		{Where: midSourcedDelivery + "EXISTS (SELECT FROM {NmsExtAccount} a JOIN {XtkOption} o ON o.sName = 'NmsMidSourcing_LastBroadLog_' || a.sName WHERE a.iExtAccountId = r.iDeliveryProviderId AND a.iExtAccountId <> 0 AND a.iActive <> 0 AND r.tsValidity < o.tsTimeStampValue)"},
	}},
	Steps: []Step{
		{
			On: deliveryLogTables, Link: "iDeliveryId", Limit: 10_000,
			Rules: []Rule{{Where: "iStatus = 6"}},
			Update: []Assignment{
				{"iStatus", "7"},
				{"tsLastModified", "@now"},
				{"iMsgId", "COALESCE(@cancelled, r.iMsgId)"},
			},
		},
		{
			On: table("NmsDelivery"), OfSet: true,
			Rules:  []Rule{{Where: "iState <> 95"}}, // an ended one is left as it is, or it would match forever
			Update: []Assignment{{"iState", "95"}, {"tsLastModified", "@now"}, {"tsBroadEnd", "COALESCE(tsValidity, @now)"}},
		},
		{
			On: table("NmsDeliveryPart"),
			Rules: []Rule{
				{Where: "r.iDeliveryId <> 0 AND EXISTS (SELECT FROM {NmsDelivery} d WHERE d.iDeliveryId = r.iDeliveryId AND d.iState IN (85, 95))"},
				{Where: "tsValidity < @now"},
			},
		},
	},
}

// cancelled is the id of the message that a delivery was cancelled, the lowest if there are several, or NULL; nil, with a note,
// when there is no table of messages.
func (c *condition) cancelled(ctx context.Context) (*pgtype.Int8, error) {
	t := c.env.Catalog.Table("NmsBroadLogMsg")
	if t == nil || !t.Has("iBroadLogMsgId", "sText") {
		c.plan.note(Info, "table NmsBroadLogMsg, or a column of it, is missing: %s keeps its message", c.table.Name)
		return nil, nil
	}
	c.env.needs(c.plan, t, "SELECT")
	if !t.CanSelect {
		return nil, nil
	}
	id := &pgtype.Int8{}
	err := c.env.Pool.QueryRow(ctx, "SELECT min(iBroadLogMsgId)::bigint FROM "+t.Quoted()+" WHERE sText = 'Delivery cancelled' AND iBroadLogMsgId <> 0").Scan(id)
	if err != nil {
		return nil, fmt.Errorf("look for the message of cancelled deliveries: %w", err)
	}
	return id, nil
}
