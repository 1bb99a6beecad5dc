package runs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// A hold that is created during a run applies as soon as CreateHold returns: its rows are retained, and the others
// deleted. After its release the next run deletes its rows.
func TestHoldInMidRun(t *testing.T) {
	t.Parallel()
	n := suite.Size[int64](suite.Long, 150, 3_000)
	db := database(t)
	db.Do(
		"INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) SELECT i, 1, '2000-01-01' FROM "+
			"generate_series(1, $1::int) i",
		n,
	)
	db.Do(fmt.Sprintf(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN WHILE NOT EXISTS (SELECT FROM cleanupd.hold) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON NmsDelivery FOR EACH ROW WHEN (OLD.iDeliveryId = %d)
			EXECUTE FUNCTION wait()`, n)) // so that the run does not end before
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1 })
	run := start(t, m, runs.Request{Tasks: []string{"deliveries"}})
	work()
	db.Until("SELECT count(*) FROM cleanupd.task WHERE name = 'deliveries' AND rows_deleted > 0")
	hold := store.Hold{Kind: store.HoldDeliveries, Reason: "a test", CreatedBy: "me"}
	for id := n / 2; id <= n; id++ {
		hold.IDs = append(hold.IDs, id)
	}
	stored, err := m.CreateHold(t.Context(), hold)
	if err != nil {
		t.Fatal(err)
	}
	stay := db.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId >= $1", n/2)
	if stay == 0 || db.Int("SELECT count(*) FROM cleanupd.run WHERE state = 'RUNNING'") == 0 {
		t.Fatal("the run was through before")
	}
	events := watch(t, m, run.ID)
	result := events[len(events)-1].Run.Result("deliveries")
	if result.State != cleanup.Succeeded || result.RowsOnHold != stay || result.RowsRetained != 0 ||
		result.RowsDeleted != n-stay ||
		!said(events, "INFO", "a hold was created") {
		t.Errorf("%+v of %d: %q", result, stay, logs(events))
	}
	if left := db.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId > 0"); left != stay {
		t.Errorf("%d deliveries are left, %d are held", left, stay)
	}
	if released, err := m.ReleaseHold(t.Context(), stored.ID, "you"); err != nil || released.ReleasedBy != "you" ||
		released.ReleaseTime == nil {
		t.Errorf("%+v, %v", released, err)
	}
	watch(t, m, start(t, m, runs.Request{Tasks: []string{"deliveries"}}).ID)
	if left := db.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId > 0"); left != 0 {
		t.Errorf("%d deliveries are left after the release", left)
	}
}

// CreateHold waits for an open batch. If its caller gives up, the hold still applies.
func TestHoldWaitsForBatches(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	db.Do(`CREATE TABLE finish (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN WHILE NOT EXISTS (SELECT FROM finish) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION wait()`)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	db.Until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()")
	ctx, leave := context.WithCancel(t.Context())
	created := make(chan error, 1)
	go func() {
		_, err := m.CreateHold(ctx, store.Hold{Kind: store.HoldEverything, Reason: "a test"})
		created <- err
	}()
	db.Until("SELECT count(*) FROM cleanupd.hold")
	select {
	case err := <-created:
		t.Fatalf("CreateHold returned while a batch was open: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	leave()
	if err := <-created; err == nil {
		t.Error("CreateHold returned no error though its caller left")
	}
	db.Do("INSERT INTO finish DEFAULT VALUES")
	events := watch(t, m, run.ID)
	if result := events[len(events)-1].Run.Result("sessions"); result.RowsDeleted != 0 || result.RowsOnHold != 10 ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != 10 {
		t.Errorf("%+v", result)
	}
}

// Whether a hold has ended is judged at the reference time of a run. A hold that has ended is listed only on request.
func TestHoldExpires(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	work()
	soon := time.Now().Add(time.Hour)
	stored, err := m.CreateHold(t.Context(),
		store.Hold{Kind: store.HoldTable, Table: "public.XtkSessionInfo", Reason: "a test", ExpireTime: &soon})
	if err != nil || stored.Schema+"."+stored.Table != "public.xtksessioninfo" {
		t.Fatalf("%+v, %v", stored, err)
	}
	watch(t, m, start(t, m, runs.Request{Tasks: []string{"sessions"}}).ID)
	if n := db.Int("SELECT count(*) FROM XtkSessionInfo"); n != 10 {
		t.Errorf("%d are left of 10 that were held", n)
	}
	db.Do("UPDATE cleanupd.hold SET expire_time = clock_timestamp() - interval '1 second'")
	for ended, want := range map[bool]int{false: 0, true: 1} {
		if list, _, err := store.ListHolds(t.Context(), db.Pool, ended, 10, ""); err != nil || len(list) != want {
			t.Errorf("%d holds, ended ones %v: %v", len(list), ended, err)
		}
	}
	watch(t, m, start(t, m, runs.Request{Tasks: []string{"sessions"}}).ID)
	if n := db.Int("SELECT count(*) FROM XtkSessionInfo"); n != 0 {
		t.Errorf("%d are left after the hold expired", n)
	}
}

// A delivery that remained on a mid-sourcing server is not deleted there while it is on hold.
func TestHoldOfLeftovers(t *testing.T) {
	t.Parallel()
	here, there := database(t), database(t)
	midSourced(here, 4)
	there.Do("INSERT INTO NmsDelivery (iDeliveryId) SELECT 1000 + i FROM generate_series(1, 4) i")
	m, work, stop := replica(t, here, "a", nil)
	work()
	watch(t, m, start(t, m, runs.Request{Tasks: []string{"deliveries"}}).ID)
	if _, err := m.CreateHold(
		t.Context(), store.Hold{Kind: store.HoldDeliveries, IDs: []int64{1}, Reason: "a test"},
	); err != nil {
		t.Fatal(err)
	}
	stop()
	m, work, _ = replica(t, here, "b", func(c *runs.Config) {
		c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool}
	})
	work()
	watch(t, m, start(t, m, runs.Request{Tasks: []string{"deliveries"}}).ID)
	if there.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 1001") != 1 {
		t.Error("the held delivery is gone there")
	}
}
