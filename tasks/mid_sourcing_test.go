package tasks_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// midSourced creates a main database and the database of the mid-sourcing server "far". The main database has obsolete
// deliveries on "far", on "lost", and on no server.
func midSourced(t *testing.T) (here, there *pgtest.DB) {
	t.Helper()
	here, there = pgtest.Campaign(t), pgtest.Campaign(t)
	here.Do(mappings + `INSERT INTO NmsExtAccount (iExtAccountId, iActive, sName) VALUES (1, 0, 'far'), (2, 1, 'lost');
		INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iState, iDeliveryMode, iMidRemoteId,
			iDeliveryProviderId) VALUES
			(1, 1, '2000-01-01', 55, 4, 101, 1), (2, 1, '2000-01-01', 95, 4, 102, 2), (3, 1, '2000-01-01', 95, 1, 103,
				1), (4, 0, '2000-01-01', 95, 4, 104, 1), (5, 1, '2000-01-01', 95, 4, 0, 1), (6, 1, '2000-01-01', 95,
				4, 199, 1);
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) SELECT iDeliveryId, iDeliveryId FROM NmsDelivery`)
	there.Do(
		`INSERT INTO NmsDelivery (iDeliveryId, iState)
			VALUES (0, 0), (1, 55), (101, 75), (102, 95), (103, 95), (104, 95);
		INSERT INTO NmsBroadLogMid (iBroadLogId, iDeliveryId) SELECT iDeliveryId, iDeliveryId FROM NmsDelivery;
		INSERT INTO NmsDeliveryPart (iDeliveryPartId, iDeliveryId) VALUES (1, 1), (2, 101)`,
	)
	return here, there
}

const (
	deliveriesLeft = "SELECT iDeliveryId::text FROM NmsDelivery ORDER BY iDeliveryId"
	logsLeft       = "SELECT iDeliveryId::text FROM NmsBroadLogRcp ORDER BY iDeliveryId"
)

func TestMidSourcing(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	unreachable := pgtest.Campaign(t)
	gone, err := pgxpool.New(t.Context(), strings.Replace(unreachable.URL(), unreachable.Name, "no_such_database", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	configured := func(c *pipeline.Config) {
		c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool, "lost": gone}
	}
	if j, err := run(
		t,
		here,
		func(c *pipeline.Config) { configured(c); c.DryRun = true },
		"deliveries",
	); err == nil || here.Int("SELECT count(*) FROM NmsDelivery") != 6 ||
		there.Int("SELECT count(*) FROM NmsDelivery WHERE iState = 75") != 1 {
		t.Errorf("a dry run: %v, %q", err, j.logs)
	}
	j, err := run(t, here, configured, "deliveries", "sessions")
	if err == nil || j.states["deliveries"] != pipeline.Failed ||
		!strings.Contains(j.problems["deliveries"], `"lost"`) ||
		errors.Is(err, pipeline.ErrLost) {
		t.Errorf("the task is %s: %s (%v)", j.states["deliveries"], j.problems["deliveries"], err)
	}
	if got := here.Strings(
		deliveriesLeft,
	); !slices.Equal(got, []string{"2", "4"}) ||
		!slices.Equal(here.Strings(logsLeft), got) {
		t.Errorf("left here: %v", got)
	}
	if got := there.Strings(
		deliveriesLeft,
	); !slices.Equal(got, []string{
		"0",
		"1",
		"102",
		"103",
		"104",
	}) || there.Int("SELECT count(*) FROM NmsDeliveryPart") != 1 ||
		there.Int("SELECT count(*) FROM NmsBroadLogMid") != 5 {
		t.Errorf("left there: %v", got)
	}
	if j.deleted["deliveries"] != 8 || !j.said("INFO", `"far"`, "2 deliveries", "3 rows deleted") {
		t.Errorf("%d rows accounted for; %q", j.deleted["deliveries"], j.logs)
	}
}

// A run that is stopped while it waits for a mid-sourcing server has not failed.
func TestMidSourcingThatIsStopped(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	j := newJournal(here)
	j.proceed = func() error {
		if there.Int("SELECT count(*) FROM NmsBroadLogMid WHERE iDeliveryId = 101") == 0 {
			return pipeline.ErrStopped
		}
		return nil
	}
	err := runWith(t, j, func(c *pipeline.Config) {
		c.MidSourcing.Databases, c.Settings.Limits = map[string]*pgxpool.Pool{
			"far": there.Pool,
		}, purge.Limits{
			RowsPerSecond: 1,
		}
	}, "deliveries")
	if !errors.Is(err, pipeline.ErrStopped) || j.states["deliveries"] != "" ||
		there.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101") != 1 {
		t.Errorf("the task is %s: %v", j.states["deliveries"], err)
	}
}

func TestMidSourcingThatIsNotConfigured(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	j := mustRun(
		t,
		here,
		func(c *pipeline.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool} },
		"deliveries",
	)
	if got := here.Strings(
		deliveriesLeft,
	); !slices.Equal(got, []string{"4"}) ||
		!j.said("WARNING", `"lost"`, "here alone") {
		t.Errorf("left here: %v; %q", got, j.logs)
	}
	if got := leftovers(
		here,
	); !slices.Equal(got, []string{"lost 102 2 "}) || j.left != 1 ||
		j.deleted["deliveries"] != 10 {
		t.Errorf("left there: %q, %d of %d rows by the account", got, j.left, j.deleted["deliveries"])
	}
}

// An account can be configured to keep its deliveries with their dependent rows.
func TestMidSourcingThatIsKept(t *testing.T) {
	t.Parallel()
	for _, dryRun := range []bool{true, false} {
		here, there := midSourced(t)
		j := mustRun(t, here, func(c *pipeline.Config) {
			c.MidSourcing, c.DryRun = midsourcing.Config{
				Databases: map[string]*pgxpool.Pool{"far": there.Pool},
				Keep:      []string{"lost", "other"},
			}, dryRun
		}, "deliveries")
		if j.states["deliveries"] != pipeline.Succeeded || j.deleted["deliveries"] != 8 ||
			!j.said("INFO", "1 deliveries", `"lost"`, "kept") ||
			j.said("WARNING") {
			t.Errorf("%s, %d rows: %q", j.states["deliveries"], j.deleted["deliveries"], j.logs)
		}
		if got := here.Strings(
			deliveriesLeft,
		); !dryRun &&
			(!slices.Equal(got, []string{"2", "4"}) || !slices.Equal(here.Strings(logsLeft), got)) {
			t.Errorf("left here: %v", got)
		}
	}
}

// A problem on a mid-sourcing server is reported with the name of the server.
func TestMidSourcingTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	there.Do("DROP TABLE NmsDeliveryMapping")
	j := mustRun(
		t,
		here,
		func(c *pipeline.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool} },
		"deliveries",
	)
	if !j.said(`"far"`, "NmsDeliveryMapping is missing") {
		t.Errorf("the run says %q", j.logs)
	}
}

// A delivery with a locked row on its mid-sourcing server is retained on both servers.
func TestMidSourcingWithALockedRow(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	there.Hold("SELECT FROM NmsBroadLogMid WHERE iDeliveryId = 101 FOR UPDATE")
	mustRun(
		t,
		here,
		func(c *pipeline.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool} },
		"deliveries",
	)
	if got := here.Strings(
		deliveriesLeft,
	); !slices.Equal(got, []string{"1", "4"}) ||
		there.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101") != 1 {
		t.Errorf("left here: %v", got)
	}
}

func TestMainDatabaseIsNoMidSourcingServer(t *testing.T) {
	t.Parallel()
	here, there := midSourced(t)
	if err := midsourcing.Check(t.Context(), here.Pool, here.Pool); !errors.Is(err, midsourcing.ErrSameDatabase) {
		t.Errorf("got %v", err)
	}
	if err := midsourcing.Check(t.Context(), here.Pool, there.Pool); err != nil {
		t.Error(err)
	}
	if j, err := run(
		t,
		here,
		func(c *pipeline.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": here.Pool} },
		"deliveries",
	); err == nil ||
		here.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId IN (1, 6)") != 2 {
		t.Errorf("the main database was purged as another: %q", j.logs)
	}
}
