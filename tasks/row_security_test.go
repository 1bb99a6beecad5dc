package tasks_test

import (
	"fmt"
	"testing"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
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
				t.Errorf(
					"the remaining logs are %q; BYPASSRLS: %t",
					super.Strings("SELECT iBroadLogId::text FROM NmsBroadLogRcp"),
					bypass,
				)
			}
			for _, task := range []string{"deliveries", "delivery-logs"} {
				if said := j.said(
					"WARNING",
					"row security may hide rows of nmsbroadlogrcp",
					"BYPASSRLS",
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
