package tasks_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// Propositions without the id of a delivery, as in version 6, are deleted with the delivery of their message if the
// message has a log.
func TestPropositionsOfDeliveriesByMessage(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete)
			VALUES (0, 1, '2000-01-01'), (1, 1, '2000-01-01'), (2, 0, '2000-01-01');
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) VALUES (0, 1), (11, 1), (12, 2), (13, 0);
			INSERT INTO NmsExcludeLogRcp (iBroadLogId, iDeliveryId) VALUES (21, 1);
		ALTER TABLE NmsPropositionRcp DROP iDeliveryId; ALTER TABLE NmsPropositionVisitor DROP iDeliveryId;
		INSERT INTO NmsPropositionRcp (iPropositionId, iBroadLogId)
			VALUES (0, 11), (1, 11), (2, 12), (3, 0), (4, 13), (5, 21), (6, 99);
		INSERT INTO NmsPropositionVisitor (iPropositionId) VALUES (1)`,
	)
	expected := mustRun(t, db, dry, "deliveries").deleted["deliveries"]
	j := mustRun(t, db, nil, "deliveries")
	checkRows(t, db, "SELECT iPropositionId::text FROM NmsPropositionRcp ORDER BY 1", "0", "2", "3", "4", "6")
	j.checkDeleted(t, "deliveries", 5)
	if expected != 5 {
		t.Errorf("a dry run counted %d rows, want 5", expected)
	}
	checkCount(t, db, 1, "SELECT count(*) FROM NmsPropositionVisitor")
	j.checkLog(t, "nmspropositionvisitor has no column iDeliveryId")
}
