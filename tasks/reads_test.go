package tasks_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A run reads all deliveries only for the two tasks whose parents no index finds, and otherwise single rows.
// NmsDelivery has wide rows, and millions of them in large installations.
func TestHowOftenDeliveriesAreRead(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO NmsDelivery (iDeliveryId, sInternalName, iState, iDeleteStatus, iDeliveryMode, tsDelete,
			tsValidity, tsWebValidity, tsLastModified, iNeedMirrorPage, mData)
			SELECT i, i, CASE WHEN i % 500 = 1 THEN 55 ELSE 95 END, CASE WHEN i % 500 = 2 THEN 1 ELSE 0 END, 1, CASE
				WHEN i % 500 = 2 THEN timestamptz '2025-01-01' END, '2026-01-01',
				CASE
					WHEN i % 500 = 3 THEN timestamptz '2026-01-01' END,
					timestamptz '2025-01-01' + i * interval '1 minute', 1, repeat('x', 300)
					FROM generate_series(1, 20000) AS i;
		INSERT INTO XtkOption (iOptionId, sName, iDataType, iLongValue) VALUES (1, 'XtkCleanup_NoStats', 3, 1)`,
	)
	db.Do("VACUUM ANALYZE NmsDelivery")
	read := func() int64 { // sessions report their reads when they end
		db.Reset()
		db.Until(
			"SELECT (count(*) = 1)::int FROM pg_stat_activity WHERE datname = current_database() AND backend_type = " +
				"'client backend'",
		)
		return db.Int("SELECT heap_blks_read + heap_blks_hit FROM pg_statio_user_tables WHERE relname = 'nmsdelivery'")
	}
	before := read()
	j := mustRun(t, db, nil)
	blocks := db.Int("SELECT pg_relation_size('nmsdelivery') / current_setting('block_size')::int")
	if times := float64(read()-before) / float64(blocks); times > 3 {
		t.Errorf("NmsDelivery was read %.1f times, want at most 3", times)
	}
	j.checkDeleted(t, "deliveries", 40)
	j.checkUpdated(t, "expired-deliveries", 40)
	j.checkUpdated(t, "mirror-pages", 40)
}
