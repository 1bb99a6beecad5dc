package tasks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// If row security may hide rows of a log, their deliveries are retained, so that no logs become orphans. The visible
// old logs are deleted, and the task reports the problem. Row security does not restrict a role with BYPASSRLS.
func TestRowSecurityOfLogs(t *testing.T) {
	t.Parallel()
	for _, bypass := range []bool{false, true} {
		t.Run(fmt.Sprint("bypass ", bypass), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(
				mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iState)
					VALUES (1, 1, '2000-01-01', 95), (2, 1, '2000-01-01', 95), (3, 0, NULL, 95);
				INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsLastModified)
					VALUES (1, 1, '2026-02-28'), (2, 2, '2026-02-28'), (3, 3, '2000-01-01'), (4, 3, '2000-01-01');
				ALTER TABLE NmsBroadLogRcp ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
					CREATE POLICY visible ON NmsBroadLogRcp USING (iBroadLogId IN (1, 3))`,
			)
			if bypass {
				all := db.Role("sees_all")
				db.Superuser(fmt.Sprintf("ALTER ROLE %s BYPASSRLS; GRANT %s TO %[1]s", all, campaigndb.Role))
				db = db.For(all)
			}
			super := db.For("postgres")
			if counted := mustRun(t, db, dry, "deliveries").deleted["deliveries"]; (counted > 0) != bypass {
				t.Errorf("a dry run counts %d rows; BYPASSRLS: %t", counted, bypass)
			}
			j := mustRun(t, db, nil, "deliveries", "delivery-logs")
			left := map[bool]int64{false: 3, true: 1}[bypass]
			checkCount(t, super, left, "SELECT count(*) FROM NmsDelivery")
			checkCount(t, super, (left - 1), "SELECT count(*) FROM NmsBroadLogRcp WHERE iDeliveryId <> 3")
			checkCount(t, super, 0, "SELECT count(*) FROM NmsBroadLogRcp WHERE iBroadLogId = 3")
			if (super.Int("SELECT count(*) FROM NmsBroadLogRcp WHERE iBroadLogId = 4") == 0) != bypass {
				t.Errorf("the remaining logs are %q; BYPASSRLS: %t",
					super.Strings("SELECT iBroadLogId::text FROM NmsBroadLogRcp"), bypass)
			}
			for _, task := range []string{"deliveries", "delivery-logs"} {
				if said := j.said(
					"WARNING", "row security may hide rows of nmsbroadlogrcp", "BYPASSRLS",
				); said == bypass {
					t.Errorf("%s: a warning about row security: %t, want %t: %q", task, said, !bypass, j.logs)
				}
				if tables := j.retained[task].Tables; (tables > 0) == bypass {
					t.Errorf("%s: %d tables were not swept to their end", task, tables)
				}
			}
			if (j.retained["deliveries"].Dependent == 2) == bypass {
				t.Errorf("deliveries retained %+v; BYPASSRLS: %t", j.retained["deliveries"], bypass)
			}
		})
	}
}

func hideRows(table string) string {
	return "ALTER TABLE " + table + " ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; "
}

// Rows are retained if row security may hide rows of another table on which the decision depends. The log names the
// table and a remedy.
func TestRowSecurityOfTablesThatDecide(t *testing.T) {
	t.Parallel()
	const (
		delivery = "INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iState) VALUES (1, 1, '2000-01-01', 95); "
		log      = "INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsLastModified) VALUES (1, 1, '2000-01-01'); "
		coupon   = "INSERT INTO NmsCouponValue (iCouponId, iMessageId) VALUES (1, 1); "
		expired  = "INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iState, tsValidity, tsLastModified, " +
			"iDeliveryProviderId) VALUES (1, 4, 85, '2026-02-27', '2026-02-28', 1); " +
			"INSERT INTO NmsExtAccount (iExtAccountId, iActive, sName) VALUES (1, 1, 'far'); " +
			"INSERT INTO XtkOption (iOptionId, sName, tsTimeStampValue) " +
			"VALUES (1, 'NmsMidSourcing_LastBroadLog_far', '2026-02-28'); "
		proposition = "ALTER TABLE NmsPropositionRcp DROP iDeliveryId; " +
			"INSERT INTO NmsPropositionRcp (iPropositionId, iBroadLogId, tsLastModified) VALUES (1, 1, '2000-01-01'); "
	)
	for name, c := range map[string]struct {
		setup, hidden string
		tasks         []string
		holds         rules.Holds
		left          string // the query for the number of rows that are left
		fails         bool
	}{
		"mappings name logs": {
			setup: mappings + delivery + log, hidden: "NmsDeliveryMapping", tasks: []string{
				"deliveries", "delivery-logs",
			},
			left: "SELECT (SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 1) * count(*) FROM NmsBroadLogRcp", fails: true,
		},
		"coupons need the logs of their deliveries": {
			setup: mappings + delivery + log + coupon, hidden: "NmsCouponValue",
			tasks: []string{"deliveries", "delivery-logs"}, left: "SELECT count(*) FROM NmsBroadLogRcp",
		},
		"web tracking logs are deleted with their tracking logs": {
			setup: mappings + "INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog) VALUES (1, '2000-01-01'); " +
				"INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) VALUES (1); ",
			hidden: "NmsWebTrackingLog", tasks: []string{"tracking-logs"},
			left: "SELECT count(*) FROM NmsTrackingLogRcp WHERE iTrackingLogId <> 0",
		},
		"workflows have histories": {
			setup: "INSERT INTO XtkWorkflow (iWorkflowId, iHistory) VALUES (1, 10); " +
				"INSERT INTO XtkWorkflowLog (iWorkflowLogId, iWorkflowId, tsLog) VALUES (1, 1, '2000-01-01'); ",
			hidden: "XtkWorkflow", tasks: []string{"workflow-instances"},
			left: "SELECT count(*) FROM XtkWorkflowLog WHERE iWorkflowLogId <> 0",
		},
		"parts belong to deliveries that have ended": {
			setup: "INSERT INTO NmsDelivery (iDeliveryId, iState) VALUES (1, 95); " +
				"INSERT INTO NmsDeliveryPart (iDeliveryPartId, iDeliveryId) VALUES (1, 1); ",
			hidden: "NmsDelivery", tasks: []string{"expired-deliveries"},
			left: "SELECT count(*) FROM NmsDeliveryPart WHERE iDeliveryPartId <> 0",
		},
		"accounts have a last pull": {
			setup: mappings + expired, hidden: "NmsExtAccount", tasks: []string{"expired-deliveries"},
			left: "SELECT count(*) FROM NmsDelivery WHERE iState = 85",
		},
		"options have the last pull of an account": {
			setup: mappings + expired, hidden: "XtkOption", tasks: []string{"expired-deliveries"},
			left: "SELECT count(*) FROM NmsDelivery WHERE iState = 85",
		},
		"logs have the deliveries on hold of propositions": {
			setup: mappings + delivery + log + proposition, hidden: "NmsBroadLogRcp", tasks: []string{"propositions"},
			holds: rules.Holds{Names: []string{"a hold"}, Deliveries: []int64{1}},
			left:  "SELECT count(*) FROM NmsPropositionRcp WHERE iPropositionId <> 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do("DELETE FROM NmsBroadLogRcp; " + c.setup + hideRows(c.hidden))
			super := db.For("postgres")
			for _, isHidden := range []bool{true, false} {
				if !isHidden {
					db.Do("ALTER TABLE " + c.hidden + " DISABLE ROW LEVEL SECURITY")
				}
				j := newJournal(db)
				j.holds = func() rules.Holds { return c.holds }
				err := runWith(t, j, nil, c.tasks...)
				if fails := isHidden && c.fails; (err != nil) != fails {
					t.Fatalf("hidden: %t: the run ended with %v", isHidden, err)
				}
				retained := c.holds.Names != nil || isHidden
				if got := super.Int(c.left); (got == 1) != retained {
					t.Errorf("hidden: %t: %d rows are left: %q", isHidden, got, j.logs)
				}
				said := j.said("WARNING", "row security may hide rows of "+strings.ToLower(c.hidden), "BYPASSRLS") ||
					c.fails && err != nil && strings.Contains(err.Error(), "BYPASSRLS")
				if said != isHidden {
					t.Errorf("hidden: %t: a warning about row security: %t: %q", isHidden, said, j.logs)
				}
				if r := j.retained[c.tasks[len(c.tasks)-1]]; isHidden && !c.fails && r == (purge.Retained{}) {
					t.Error("nothing counts as retained")
				}
			}
		})
	}
}
