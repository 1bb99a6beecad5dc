package tasks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// Rows are on hold through a log that the mappings name, even if the log is not cleaned. A task does not begin if the
// role may not read the mappings.
func TestHoldsThroughLogs(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(mappings + `ALTER TABLE NmsCouponValue ADD at timestamptz; ALTER TABLE NmsWebTrackingLog ADD at timestamptz;
		INSERT INTO NmsCouponValue (iCouponId, iMessageId, at) VALUES (1, 1, '2000-01-01'); -- by a message
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) VALUES (1, 1);
		INSERT INTO NmsWebTrackingLog (iWebTrackingLogId, at) VALUES (1, '2000-01-01'); -- by a paired row
		INSERT INTO NmsTrackingLogRcp (iTrackingLogId, iRecipientId) VALUES (1, 7)`)
	old := &policy.OlderThan{Column: "at", Days: new(1)}
	todo := []rules.Task{
		policy.Policy{Name: "coupons", Enabled: true, Table: "NmsCouponValue", OlderThan: old}.Task(),
		policy.Policy{Name: "web", Enabled: true, Table: "NmsWebTrackingLog", OlderThan: old}.Task(),
	}
	for _, change := range []string{
		"SELECT", "DROP INDEX NmsBroadLogRcp_id, NmsTrackingLogRcp_id",
		"REVOKE SELECT ON NmsDeliveryMapping FROM neolane",
	} {
		db.Do(change)
		j := newJournal(db)
		j.holds = func() rules.Holds {
			return rules.Holds{Names: []string{"a hold"}, Deliveries: []int64{1}, Recipients: []int64{7}}
		}
		err := runWith(t, j, func(config *cleanup.Config) {
			config.Todo, config.Pipeline = todo, slices.Concat(tasks.Pipeline, todo)
		})
		if strings.HasPrefix(change, "REVOKE") {
			for _, task := range todo {
				j.checkProblem(t, task.Name, `GRANT SELECT ON "public"."nmsdeliverymapping"`)
			}
		} else if err != nil {
			t.Error(err)
		}
		checkCount(t, db, 1, "SELECT count(*) FROM NmsCouponValue WHERE at IS NOT NULL")
		checkCount(t, db, 1, "SELECT count(*) FROM NmsWebTrackingLog WHERE at IS NOT NULL")
	}
}

// Rows are also on hold through a log that is not cleaned itself.
func TestHoldsThroughUnfitLogs(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]string{
		"without a key": "DROP INDEX NmsBroadLogRcp_id",
		"in a view":     "ALTER TABLE NmsBroadLogRcp RENAME TO CusLog; CREATE VIEW NmsBroadLogRcp AS SELECT * FROM CusLog",
		"in a materialized view": "ALTER TABLE NmsBroadLogRcp RENAME TO CusLog; " +
			"CREATE MATERIALIZED VIEW NmsBroadLogRcp AS SELECT * FROM CusLog WITH DATA; " +
			"INSERT INTO CusLog (iBroadLogId, iDeliveryId) VALUES (3, 1)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(mappings + `ALTER TABLE NmsPropositionRcp DROP iDeliveryId;
				INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) VALUES (1, 1), (2, 2);
				INSERT INTO NmsPropositionRcp (iPropositionId, iBroadLogId, tsLastModified)
					VALUES (1, 1, '2000-01-01'), (2, 2, '2000-01-01'), (3, 3, '2000-01-01'); ` + setup)
			j := newJournal(db)
			j.holds = func() rules.Holds { return rules.Holds{Names: []string{"a hold"}, Deliveries: []int64{1}} }
			if err := runWith(t, j, nil, "propositions"); err != nil {
				t.Fatal(err)
			}
			want := map[string][]string{"in a materialized view": {"1", "2", "3"}}[name]
			if want == nil {
				want = []string{"1"}
			}
			checkRows(t, db, "SELECT iPropositionId::text FROM NmsPropositionRcp WHERE iPropositionId <> 0 ORDER BY 1",
				want...)
		})
	}
}
