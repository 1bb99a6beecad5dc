package runs_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
)

// Obsolete deliveries, every second of them on a mid-sourcing server that no database is configured for.
func midSourced(db *pgtest.DB, n int) {
	db.Do("INSERT INTO NmsExtAccount (iExtAccountId, sName) VALUES (1, 'far')")
	db.Do(
		`INSERT INTO NmsDelivery (iDeliveryId, sLabel, iDeleteStatus, tsDelete, iDeliveryMode, iMidRemoteId,
			iDeliveryProviderId)
		SELECT i, 'label ' || i, 1, '2000-01-01', 4 * (i % 2), 1000 + i, i % 3 FROM generate_series(1, $1::int) i`,
		n,
	)
}

// wrong counts, among n deliveries, those whose entry exists although the delivery does, or is missing although it does
// not.
const wrong = `SELECT count(*) FROM generate_series(1, $1::int) i LEFT JOIN NmsDelivery d ON d.iDeliveryId = i LEFT
	JOIN cleanupd.remote_delivery r ON r.delivery_id = i
	WHERE (r.delivery_id IS NOT NULL) <> (d.iDeliveryId IS NULL AND i % 2 = 1)
	OR r.delivery_id IS NOT NULL AND (account, remote_id, label, run_id) IS DISTINCT FROM (CASE i % 3
		WHEN 1 THEN 'far' ELSE '' END, 1000 + i, 'label ' || i, (SELECT id FROM cleanupd.run))`

// Deliveries that remain on mid-sourcing servers are recorded when they are deleted in the main database, and only
// then, whichever replica deletes them; they are counted exactly.
func TestLeftoversOfATakeover(t *testing.T) {
	t.Parallel()
	const n = 3_000
	db := database(t)
	midSourced(db, n)
	a, workA, stopA := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1; c.Lease = time.Hour })
	b, workB, _ := replica(t, db, "b", nil)
	run := start(t, a, runs.Request{Tasks: []string{"deliveries"}})
	workA()
	db.Until("SELECT count(*) FROM cleanupd.remote_delivery")
	for range 10 {
		if bad := db.Int(wrong, n); bad != 0 {
			t.Fatalf("%d entries are wrong while the run works", bad)
		}
	}
	if db.Int("SELECT count(*) FROM NmsDelivery") == 0 {
		t.Fatal("the first replica was through before the run was taken over")
	}
	// as if it had not been renewed
	db.Do("UPDATE cleanupd.run SET lease_until = clock_timestamp() - interval '1 hour'")
	workB()
	events := watch(t, b, run.ID)
	stopA()
	checkFinished(t, events, n)
	result := events[len(events)-1].Run.Result("deliveries")
	if bad := db.Int(wrong, n); bad != 0 || result.RemoteDeliveriesRetained != n/2 {
		t.Errorf("%d entries are wrong; %d deliveries are counted as retained there, want %d", bad,
			result.RemoteDeliveriesRetained, n/2)
	}
	if db.Int("SELECT count(DISTINCT generation) FROM cleanupd.event") < 2 ||
		!said(events, "WARNING", `"far"`, "retained there") {
		t.Errorf("the log: %q", logs(events))
	}
}

// A dry run counts deliveries that would remain on mid-sourcing servers, also after a takeover, and records none. A
// delivery whose row was restored is recorded once.
func TestLeftoversOfDryAndLaterRuns(t *testing.T) {
	t.Parallel()
	db := database(t)
	midSourced(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	work()
	var left []int64
	for _, dry := range []bool{true, false, true, false} {
		run := start(t, m, runs.Request{Tasks: []string{"deliveries"}, DryRun: dry})
		events := watch(t, m, run.ID)
		left = append(left, events[len(events)-1].Run.Result("deliveries").RemoteDeliveriesRetained,
			db.Int("SELECT count(*) FROM cleanupd.remote_delivery"))
		if !dry && len(left) == 4 {
			db.Do(
				"INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iDeliveryMode, iMidRemoteId, " +
					"iDeliveryProviderId) SELECT i, 1, '2000-01-01', 4, 1000 + i, i % 3 FROM generate_series(1, 2) i",
			)
		}
	}
	if want := []int64{5, 0, 5, 5, 2, 5, 2, 6}; !slices.Equal(left, want) {
		t.Errorf("counted as left there, and recorded, run by run: %v, want %v", left, want)
	}
}

// An entry of the list is removed once its delivery is purged on the server, whichever run left it. Entries of other
// servers stay.
func TestLeftoversArePurged(t *testing.T) {
	t.Parallel()
	db, there := database(t), pgtest.Campaign(t)
	midSourced(db, 9)
	there.Do("INSERT INTO NmsDelivery (iDeliveryId) SELECT 1000 + i FROM generate_series(0, 9) i")
	a, workA, stopA := replica(t, db, "a", nil)
	workA()
	watch(t, a, start(t, a, runs.Request{Tasks: []string{"deliveries"}}).ID)
	stopA()
	db.Do(
		"INSERT INTO cleanupd.remote_delivery SELECT 'other', remote_id, delivery_id, '', run_id FROM " +
			"cleanupd.remote_delivery WHERE account = 'far'",
	)
	b, workB, _ := replica(t, db, "b",
		func(c *runs.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool} })
	workB()
	events := watch(t, b, start(t, b, runs.Request{Tasks: []string{"deliveries"}}).ID)
	checkFinished(t, events, 0)
	if left := db.Strings("SELECT account || remote_id FROM cleanupd.remote_delivery ORDER BY 1"); !slices.Equal(
		left, []string{"1003", "1005", "1009", "other1001", "other1007"},
	) {
		t.Errorf("recorded: %v; %q", left, logs(events))
	}
	if left := there.Strings("SELECT iDeliveryId::text FROM NmsDelivery ORDER BY 1"); !slices.Equal(
		left, []string{"1000", "1002", "1003", "1004", "1005", "1006", "1008", "1009"},
	) {
		t.Errorf("there: %v", left)
	}
}
