package tasks_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// midSourced creates a main database and the database of the mid-sourcing server "far".
func midSourced(t *testing.T) (here, there *pgtest.DB) {
	t.Helper()
	there = pgtest.Campaign(t)
	there.Do(
		`INSERT INTO NmsDelivery (iDeliveryId, iState)
			VALUES (0, 0), (1, 55), (101, 75), (102, 95), (103, 95), (104, 95);
		INSERT INTO NmsBroadLogMid (iBroadLogId, iDeliveryId) SELECT iDeliveryId, iDeliveryId FROM NmsDelivery;
		INSERT INTO NmsDeliveryPart (iDeliveryPartId, iDeliveryId) VALUES (1, 1), (2, 101)`,
	)
	return mainDatabase(t), there
}

// mainDatabase creates a database with obsolete deliveries on the mid-sourcing server "far", on "lost", and on none.
func mainDatabase(t *testing.T) *pgtest.DB {
	t.Helper()
	here := pgtest.Campaign(t)
	here.Do(mappings + `INSERT INTO NmsExtAccount (iExtAccountId, iActive, sName) VALUES (1, 0, 'far'), (2, 1, 'lost');
		INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iState, iDeliveryMode, iMidRemoteId,
			iDeliveryProviderId) VALUES
			(1, 1, '2000-01-01', 55, 4, 101, 1), (2, 1, '2000-01-01', 95, 4, 102, 2), (3, 1, '2000-01-01', 95, 1, 103,
				1), (4, 0, '2000-01-01', 95, 4, 104, 1), (5, 1, '2000-01-01', 95, 4, 0, 1), (6, 1, '2000-01-01', 95,
				4, 199, 1);
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) SELECT iDeliveryId, iDeliveryId FROM NmsDelivery`)
	return here
}

const (
	deliveriesLeft = "SELECT iDeliveryId::text FROM NmsDelivery ORDER BY iDeliveryId"
	logsLeft       = "SELECT iDeliveryId::text FROM NmsBroadLogRcp ORDER BY iDeliveryId"
)

// migrate creates the service's tables, including that of the trash.
func migrate(t *testing.T, db *pgtest.DB) {
	t.Helper()
	if err := db.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		return store.Migrate(t.Context(), conn.Conn())
	}); err != nil {
		t.Fatal(err)
	}
}

// With undo, what is deleted here waits in the trash; what a mid-sourcing server deletes does not, and the run says so.
func TestMidSourcingWithUndo(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	migrate(t, here)
	j := mustRun(t, here, func(c *cleanup.Config) {
		c.ID, c.TrashMaxBytes, c.Todo[0].Undo = uuid.NewString(), 1<<30, new(time.Hour)
		c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool}
		c.MidSourcing.Keep = []string{"lost"}
	}, "deliveries")
	j.checkLog(t, "nmsdelivery", "cannot be undone", "mid-sourcing")
	checkCount(t, there, 0, "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101")
	checkCount(t, there, 0, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'cleanupd%'")
	name := here.Strings(`SELECT name FROM cleanupd.trash WHERE root = '"public"."nmsdelivery"'`)[0]
	checkCount(t, here, 6, "SELECT (SELECT count(*) FROM NmsDelivery) + count(*) FROM cleanupd_trash."+name)
}

func TestMidSourcing(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	unreachable := pgtest.Campaign(t)
	gone, err := pgxpool.New(t.Context(), strings.Replace(unreachable.URL(), unreachable.Name, "no_such_database", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	configured := func(c *cleanup.Config) {
		c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool, "lost": gone}
	}
	_, err = run(t, here, func(c *cleanup.Config) { configured(c); c.DryRun = true }, "deliveries")
	checkCount(t, here, 6, "SELECT count(*) FROM NmsDelivery")
	checkCount(t, there, 1, "SELECT count(*) FROM NmsDelivery WHERE iState = 75")
	if err == nil {
		t.Error("the run succeeded")
	}
	j, err := run(t, here, configured, "deliveries", "sessions")
	j.checkState(t, "deliveries", cleanup.Failed)
	j.checkProblem(t, "deliveries", `"lost"`)
	if err == nil || errors.Is(err, cleanup.ErrLost) {
		t.Errorf("the run ended with %v, want the error of the task", err)
	}
	checkRows(t, here, deliveriesLeft, "2", "4")
	checkRows(t, here, logsLeft, "2", "4")
	checkRows(t, there, deliveriesLeft, "0", "1", "102", "103", "104")
	checkCount(t, there, 1, "SELECT count(*) FROM NmsDeliveryPart")
	checkCount(t, there, 5, "SELECT count(*) FROM NmsBroadLogMid")
	j.checkDeleted(t, "deliveries", 8)
	j.checkLog(t, "INFO", `"far"`, "2 deliveries", "3 rows deleted")
}

// A skipped log on a mid-sourcing server retains the deliveries that it has rows of, on both servers.
func TestMidSourcingWithASkippedLog(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	there.Do("ALTER TABLE NmsBroadLogMid DROP iStatus")
	for _, change := range []func(*cleanup.Config){dry, func(*cleanup.Config) {}} {
		j, err := run(t, here, func(c *cleanup.Config) {
			change(c)
			c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool}
		}, "deliveries")
		if !j.said("WARNING", `"far"`, "dependent rows are in nmsbroadlogmid, which was skipped") {
			t.Errorf("%v: %q", err, j.logs)
		}
	}
	if got := here.Strings(deliveriesLeft); !slices.Contains(got, "1") ||
		there.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101") != 1 {
		t.Errorf("left here: %v", got)
	}
}

// A run that is stopped while it waits for a mid-sourcing server has not failed.
func TestMidSourcingThatIsStopped(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	j := newJournal(here)
	j.proceed = func() error {
		if there.Int("SELECT count(*) FROM NmsBroadLogMid WHERE iDeliveryId = 101") == 0 {
			return cleanup.ErrStopped
		}
		return nil
	}
	err := runWith(t, j, func(c *cleanup.Config) {
		c.MidSourcing.Databases, c.Settings.Limits = map[string]*pgxpool.Pool{
			"far": there.Pool,
		}, purge.Limits{
			RowsPerSecond: 1,
		}
	}, "deliveries")
	j.checkState(t, "deliveries", "")
	checkCount(t, there, 1, "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101")
	if !errors.Is(err, cleanup.ErrStopped) {
		t.Errorf("the run ended with %v, want %v", err, cleanup.ErrStopped)
	}
}

// An account can be configured to keep its deliveries with their dependent rows.
func TestMidSourcingThatIsKept(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	for _, dryRun := range []bool{true, false} {
		j := mustRun(t, here, func(c *cleanup.Config) {
			c.MidSourcing, c.DryRun = cleanup.MidSourcing{
				Databases: map[string]*pgxpool.Pool{"far": there.Pool},
				Keep:      []string{"lost", "other"},
			}, dryRun
		}, "deliveries")
		j.checkState(t, "deliveries", cleanup.Succeeded)
		j.checkDeleted(t, "deliveries", 8)
		j.checkLog(t, "INFO", "1 deliveries", `"lost"`, "retained")
		j.checkNoLog(t, "WARNING")
	}
	checkRows(t, here, deliveriesLeft, "2", "4")
	checkRows(t, here, logsLeft, "2", "4")
}

// Deliveries whose account may be hidden are retained: a server may have them, or their account may be one to keep.
func TestMidSourcingWithHiddenAccounts(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]string{
		"row security": hideRows("NmsExtAccount") + "CREATE POLICY p ON NmsExtAccount USING (sName = 'far')",
		"a view": "ALTER TABLE NmsExtAccount RENAME TO CusExtAccount; " +
			"CREATE VIEW NmsExtAccount AS SELECT * FROM CusExtAccount",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there := midSourced(t)
			here.Do(hide)
			for _, dryRun := range []bool{true, false} {
				j := mustRun(t, here, func(c *cleanup.Config) {
					c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool}
					c.DryRun = dryRun
				}, "deliveries")
				j.checkLog(t, "WARNING", "of nmsdelivery", "their mid-sourcing account is unknown")
				if got := j.retained["deliveries"].Dependent; got == 0 {
					t.Error("no delivery counts as retained")
				}
				checkRecordedRemotes(t, here)
				checkCount(t, here, 1, "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 2")
			}
		})
	}
}

// A problem on a mid-sourcing server is reported with the name of the server: a refusal with its hint, and what is
// missing there.
func TestMidSourcingServerWithProblems(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	far := func(c *cleanup.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool} }
	there.Superuser("CREATE PUBLICATION everything FOR ALL TABLES")
	j, _ := run(t, here, far, "deliveries")
	j.checkProblem(t, "deliveries", `"far"`)
	j.checkProblem(t, "deliveries", "hint: To enable updating the table, set REPLICA IDENTITY")
	there.Superuser("DROP PUBLICATION everything")
	there.Do("DROP TABLE NmsDeliveryMapping")
	mustRun(t, here, far, "deliveries").checkLog(t, `"far"`, "NmsDeliveryMapping is missing")
}

// A delivery with a locked row on its mid-sourcing server is retained on both servers. A server that is not configured
// is named in a warning, and its deliveries are recorded.
func TestMidSourcingThatIsNotConfigured(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	far := func(c *cleanup.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool} }
	locked := there.Hold("SELECT FROM NmsBroadLogMid WHERE iDeliveryId = 101 FOR UPDATE")
	j := mustRun(t, here, far, "deliveries")
	checkRows(t, here, deliveriesLeft, "1", "4")
	checkCount(t, there, 1, "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101")
	j.checkLog(t, "WARNING", `"lost"`, "only here")
	checkRecordedRemotes(t, here, "lost 102 2 ")
	if j.recorded != 1 {
		t.Errorf("%d remote deliveries were counted as recorded, want 1", j.recorded)
	}
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := mustRun(t, here, far, "deliveries")
	checkRows(t, here, deliveriesLeft, "4")
	if got := j.deleted["deliveries"] + again.deleted["deliveries"]; got != 10 {
		t.Errorf("%d rows were deleted, want 10", got)
	}
}

func TestMainDatabaseIsNoMidSourcingServer(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	if err := cleanup.CheckMidSourcing(t.Context(), here.Pool, here.Pool); !errors.Is(err, cleanup.ErrSameDatabase) {
		t.Errorf("got %v, want %v", err, cleanup.ErrSameDatabase)
	}
	if err := cleanup.CheckMidSourcing(t.Context(), here.Pool, there.Pool); err != nil {
		t.Error(err)
	}
	_, err := run(t, here,
		func(c *cleanup.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": here.Pool} }, "deliveries")
	checkCount(t, here, 2, "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId IN (1, 6)")
	if err == nil {
		t.Error("the run succeeded")
	}
}
