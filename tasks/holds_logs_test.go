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
	for name, c := range map[string]struct {
		holds rules.Holds
		task  rules.Task
		rows  string
	}{
		"by a message": {
			holds: rules.Holds{Names: []string{"a hold"}, Deliveries: []int64{1}},
			task: policy.Policy{Name: "p", Enabled: true, Table: "NmsCouponValue", OlderThan: &policy.OlderThan{
				Column: "at",
				Days:   new(1),
			}}.Task(),
			rows: "ALTER TABLE NmsCouponValue ADD at timestamptz; " +
				"INSERT INTO NmsCouponValue (iCouponId, iMessageId, at) VALUES (1, 1, '2000-01-01'); " +
				"INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) VALUES (1, 1); ",
		},
		"by a paired row": {
			holds: rules.Holds{Names: []string{"a hold"}, Recipients: []int64{7}},
			task: policy.Policy{
				Name: "p", Enabled: true, Table: "NmsWebTrackingLog", OlderThan: &policy.OlderThan{Column: "at", Days: new(1)},
			}.Task(),
			rows: "ALTER TABLE NmsTrackingLogRcp ADD IF NOT EXISTS iRecipientId integer; " +
				"ALTER TABLE NmsWebTrackingLog ADD at timestamptz; " +
				"INSERT INTO NmsWebTrackingLog (iWebTrackingLogId, at) VALUES (1, '2000-01-01'); " +
				"INSERT INTO NmsTrackingLogRcp (iTrackingLogId, iRecipientId) VALUES (1, 7); ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, change := range []string{
				"SELECT", "DROP INDEX NmsBroadLogRcp_id, NmsTrackingLogRcp_id",
				"REVOKE SELECT ON NmsDeliveryMapping FROM neolane",
			} {
				db := pgtest.Campaign(t)
				db.Do(mappings + c.rows + change)
				j := newJournal(db)
				j.holds = func() rules.Holds { return c.holds }
				err := runWith(t, j, func(config *cleanup.Config) {
					config.Todo = []rules.Task{c.task}
					config.Pipeline = slices.Concat(tasks.Pipeline, config.Todo)
				})
				if strings.HasPrefix(change, "REVOKE") {
					checkError(t, err, `GRANT SELECT ON "public"."nmsdeliverymapping"`)
				} else if err != nil {
					t.Error(err)
				}
				table := c.task.Names[0]
				checkCount(t, db, 1, "SELECT count(*) FROM "+table+" WHERE at IS NOT NULL")
			}
		})
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
