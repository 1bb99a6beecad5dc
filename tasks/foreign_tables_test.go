package tasks_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// logTables are the tables that installations move to other servers.
var logTables = []string{
	"nmsbroadlogrcp", "nmsexcludelogrcp", "nmsbroadlogmid", "cusbroadlogstore", "nmstrackinglogrcp",
	"custrackinglogstore", "nmswebtrackinglog", "nmspropositionrcp",
}

func moveLogs(m *model, rng *rand.Rand, ways ...func(table, key string)) {
	for _, table := range m.db.Tables {
		if slices.Contains(logTables, table.Name) && rng.IntN(2) == 0 {
			ways[rng.IntN(len(ways))](table.Name, table.Key)
		}
	}
}

func toForeignTables(db *pgtest.DB, m *model, rng *rand.Rand) {
	far := db.Far()
	moveLogs(m, rng, func(table, _ string) { db.MoveAway(far, table) },
		func(table, key string) { db.PartitionAway(far, table, key, 50) })
}

// toShards distributes log tables by their keys. It skips databases whose dates have no time zone: Citus cannot compare
// such dates with timestamps that have one.
func toShards(db *pgtest.DB, m *model, rng *rand.Rand) {
	if db.Int(
		"SELECT count(*) FROM pg_attribute WHERE attrelid = 'xtkoption'::regclass AND atttypid = 'timestamp'::regtype",
	) == 0 {
		moveLogs(m, rng, db.Distribute)
	}
}

// A run on a random database with foreign or distributed logs deletes the rows that the model deletes, and its counts
// are exact.
func TestRandomDatabasesWithLogsElsewhere(t *testing.T) {
	t.Parallel()
	for where, c := range map[string]struct {
		database func(testing.TB) *pgtest.DB
		move     func(db *pgtest.DB, m *model, rng *rand.Rand)
	}{"foreign tables": {pgtest.Campaign, toForeignTables}, "Citus": {pgtest.Citus, toShards}} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			for i := range (*seeds + 2) / 3 {
				seed := *firstSeed + uint64(i)
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					t.Parallel()
					db := c.database(t)
					m := randomDatabase(t, db, seed, now)
					c.move(db, m, rand.New(rand.NewPCG(seed, 6)))
					original := m.keys()
					m.run()
					for _, which := range []string{"first", "second"} {
						j := newJournal(db)
						if err := runWith(t, j, nil); err != nil {
							t.Fatal(err)
						}
						compare(t, which, contents(t, db, m, original), m.contents(original))
						var sum [3]int64
						for _, d := range j.batches {
							sum[0], sum[1], sum[2] = sum[0]+d.Deleted, sum[1]+d.Updated, sum[2]+d.Dropped
						}
						if want := [3]int64{m.deleted, m.updated, m.dropped}; which == "first" && sum != want {
							t.Errorf("deleted, updated and dropped: %d, want %d", sum, want)
						}
					}
				})
			}
		})
	}
}

// oldLogs creates a tracking log of n old rows and a young one in a foreign table. Half of the old rows have a web
// tracking log.
func oldLogs(t *testing.T, n int) (here, far *pgtest.DB) {
	t.Helper()
	here = pgtest.Campaign(t)
	here.Do("INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sTrackingLogSchema) VALUES (1, 'nms:trackingLogRcp')")
	here.Do(
		"INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog) SELECT i, timestamptz '2000-01-01' FROM "+
			"generate_series(0, $1::int) AS i UNION ALL SELECT $1 + 1, '2026-02-01'",
		n,
	)
	here.Do(
		"INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) SELECT iTrackingLogId FROM NmsTrackingLogRcp WHERE " +
			"iTrackingLogId % 2 = 0",
	)
	far = here.Far()
	here.MoveAway(far, "nmstrackinglogrcp")
	return here, far
}

const remainingLogs = "SELECT string_agg(iTrackingLogId::text, ' ' ORDER BY iTrackingLogId) FROM NmsTrackingLogRcp"

// A dry run counts the rows of a foreign table that a run deletes. The zero record is kept.
func TestForeignTable(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 2, 1} {
		t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			suite.Except(t, suite.Long, "limit 0", "limit 1")
			t.Parallel()
			here, far := oldLogs(t, 40)
			for _, isDry := range []bool{true, false} {
				j := mustRun(t, here, func(c *cleanup.Config) { c.DryRun, c.Settings.MaxRows = isDry, limit },
					"tracking-logs")
				if j.deleted["tracking-logs"] != 60 {
					t.Errorf("dry run: %t: %d rows, want 40 logs and 20 of the web", isDry, j.deleted["tracking-logs"])
				}
				for _, d := range j.batches {
					if limit > 0 && d.Deleted > int64(max(limit, 2)) {
						t.Errorf("a batch of %d rows, want at most %d", d.Deleted, limit)
					}
				}
			}
			checkRows(t, far, remainingLogs, "0 41")
			checkCount(t, here, 1, "SELECT count(*) FROM NmsWebTrackingLog")
		})
	}
}

// A saved plan has separate entries for the logs of a foreign table and their paired rows.
func TestPlanOfAForeignTable(t *testing.T) {
	t.Parallel()
	here, _ := oldLogs(t, 400)
	planned := makePlan(t, here, "tracking-logs")
	rows := map[string]int64{}
	for _, p := range planned["tracking-logs"].Tables {
		rows[p.Table] = p.Rows
	}
	want := map[string]int64{`"public"."nmstrackinglogrcp"`: 400, `"public"."nmswebtrackinglog"`: 200}
	for table, n := range want {
		if rows[table] != n {
			t.Errorf("the plan has %d rows of %s, want %d", rows[table], table, n)
		}
	}
	j, refused := runPlan(t, here, planned, nil, "tracking-logs")
	j.checkDeleted(t, "tracking-logs", 600)
	if refused != nil {
		t.Errorf("the run was refused: %v", refused)
	}
}

// If only the other server commits, the deleted rows are counted once: by the same worker if it continues, otherwise by
// the next one.
func TestCommittedElsewhereAlone(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies %t", dies), func(t *testing.T) {
			t.Parallel()
			here, far := oldLogs(t, 40)
			other := pgtest.Empty(t)
			other.Do(
				`CREATE TABLE fuse (i int); INSERT INTO fuse VALUES (1); CREATE FUNCTION blow() RETURNS trigger
					LANGUAGE plpgsql AS 'BEGIN RAISE ''no commit''; END';
				CREATE CONSTRAINT TRIGGER blow AFTER UPDATE ON fuse DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
					EXECUTE FUNCTION blow()`,
			)
			far.Do("CREATE TABLE original AS SELECT * FROM NmsTrackingLogRcp")
			here.Do("CREATE TABLE original AS SELECT * FROM NmsWebTrackingLog")
			for alone := false; !alone; { // the order of the commits depends on the ids of objects
				here.Superuser("DROP SERVER IF EXISTS other CASCADE")
				here.Server("other", other)
				here.Do("IMPORT FOREIGN SCHEMA public LIMIT TO (fuse) FROM SERVER other INTO public")
				far.Do("TRUNCATE NmsTrackingLogRcp; INSERT INTO NmsTrackingLogRcp SELECT * FROM original")
				here.Do("TRUNCATE NmsWebTrackingLog; INSERT INTO NmsWebTrackingLog SELECT * FROM original")
				j := newJournal(here)
				j.beforeCommit = func(b *pgx.Batch, d purge.Delta) {
					if d.Deleted > 0 { // not the entry that announces the deletion
						b.Queue("UPDATE fuse SET i = 2")
					}
				}
				if dies {
					j.onFailure = cleanup.ErrLost
				}
				err := runWith(t, j, nil, "tracking-logs")
				alone = far.Int("SELECT count(*) FROM NmsTrackingLogRcp") == 2
				if dies != errors.Is(err, cleanup.ErrLost) || (!dies && alone != (err == nil)) {
					t.Fatalf("the run ended with %v; only the other server committed: %t", err, alone)
				}
				j.beforeCommit, j.onFailure = nil, nil
				// The next worker settles what is pending. It fails if rows have failed before; another run deletes those.
				_ = runWith(t, j, func(c *cleanup.Config) { c.Cursor = j.cursor }, "tracking-logs")
				if err := runWith(t, j, nil, "tracking-logs"); err != nil {
					t.Fatal(err)
				}
				j.checkDeleted(t, "tracking-logs", 60)
				checkRows(t, far, remainingLogs, "0 41")
			}
		})
	}
}

// Rows that are locked on the other server are retained and counted. The other rows are deleted.
func TestLockedInForeignTable(t *testing.T) {
	t.Parallel()
	here, far := oldLogs(t, 20)
	here.Superuser("ALTER SERVER far OPTIONS (options '-c lock_timeout=50')")
	far.Hold("SELECT FROM NmsTrackingLogRcp WHERE iTrackingLogId IN (3, 4) FOR UPDATE")
	j := mustRun(t, here, nil, "tracking-logs")
	checkRows(t, far, remainingLogs, "0 3 4 21")
	j.checkLog(t, "WARNING", "nmstrackinglogrcp", "2 obsolete rows were locked")
}

// A task that cannot delete rows on another server fails at its end. It reports the reason and the number of remaining
// rows.
func TestRefusedElsewhere(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		prepare func(here, far *pgtest.DB)
		task    string
		says    []string
	}{
		"no key": {
			func(here, far *pgtest.DB) {
				here.Do("INSERT INTO NmsSubscription (iServiceId, iRecipientId, iDeleteStatus) VALUES (1, 1, 1), (1, " +
					"2, " +
					"0), (1, 3, 1)")
				here.MoveAway(far, "nmssubscription")
			},
			"subscriptions",
			[]string{"nmssubscription (in a foreign table)", "no integer key", "obsolete rows retained: 2"},
		},
		"a trigger": {
			func(here, far *pgtest.DB) {
				here.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('a', '2000-01-01'); INSERT INTO " +
					"NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2000-01-01'), (2, '2000-01-01')")
				here.MoveAway(far, "nmsvisitor")
				far.Do(`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not this one''; END';
				CREATE TRIGGER no BEFORE DELETE ON NmsVisitor FOR EACH ROW EXECUTE FUNCTION no()`)
			},
			"visitors",
			[]string{"2 of 2 rows failed", "not this one"},
		},
		"the server is away": {func(here, far *pgtest.DB) {
			here.Do("INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2000-01-01')")
			here.MoveAway(far, "nmsvisitor")
			here.Superuser("ALTER SERVER far OPTIONS (SET dbname 'no_such_database')")
		}, "visitors", []string{
			"nmsvisitor (in a foreign table)", "could not connect", "obsolete rows retained: unknown",
		}},
		"coalescing": {func(here, far *pgtest.DB) {
			here.Do("INSERT INTO NmsEmailErrorStat (tsDate) VALUES ('2000-01-01')")
			here.MoveAway(far, "nmsemailerrorstat")
		}, "email-error-stats", []string{"nmsemailerrorstat is in a foreign table"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			here := pgtest.Campaign(t)
			c.prepare(here, here.Far())
			j, err := run(t, here, func(c *cleanup.Config) { c.ContinueOnError = true }, c.task, "sessions")
			j.checkState(t, c.task, cleanup.Failed)
			j.checkState(t, "sessions", cleanup.Succeeded)
			j.checkDeleted(t, c.task, 0)
			if err == nil || errors.Is(err, cleanup.ErrLost) {
				t.Errorf("the run ended with %v, want the error of a task", err)
			}
			for _, part := range c.says {
				j.checkProblem(t, c.task, part)
			}
		})
	}
}

// Rows of a foreign partition that an update would move to another partition are not updated, and neither is their
// delivery.
func TestForeignRowsThatWouldMove(t *testing.T) {
	t.Parallel()
	here := pgtest.Campaign(t)
	far := here.Far()
	far.Do(
		"CREATE TABLE old (iBroadLogId bigint, iDeliveryId integer, iRecipientId integer, iStatus smallint, iMsgId " +
			"integer, sAddress varchar(255), tsEvent timestamptz, tsLastModified timestamptz)",
	)
	here.Do(
		`ALTER TABLE NmsBroadLogRcp RENAME TO logs;
			CREATE TABLE NmsBroadLogRcp (LIKE logs INCLUDING DEFAULTS) PARTITION BY RANGE (tsLastModified);
		ALTER TABLE NmsBroadLogRcp ATTACH PARTITION logs FOR VALUES FROM ('2026-01-01') TO (MAXVALUE);
		CREATE FOREIGN TABLE old PARTITION OF NmsBroadLogRcp FOR VALUES FROM (MINVALUE) TO ('2026-01-01') SERVER far;
		INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
		INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iState, tsValidity)
			VALUES (1, 1, 55, '2026-02-01'), (2, 1, 55, '2026-02-01');
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iStatus, tsLastModified)
			VALUES (1, 1, 6, '2025-12-31'), (2, 1, 1, '2025-12-31'), (3, 2, 6, '2026-02-01')`,
	)
	j, err := run(t, here, nil, "expired-deliveries")
	j.checkProblem(t, "expired-deliveries", "old (in a foreign table)")
	if err == nil {
		t.Error("the run succeeded")
	}
	got := here.Strings(
		"SELECT format('log %s: %s', iBroadLogId, iStatus) FROM NmsBroadLogRcp UNION ALL SELECT format('delivery %s: " +
			"%s', iDeliveryId, iState) FROM NmsDelivery ORDER BY 1",
	)
	want := []string{"delivery 1: 55", "delivery 2: 95", "log 1: 6", "log 2: 1", "log 3: 7"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Foreign tables may have any integer keys.
func TestForeignTableWithExtremeKeys(t *testing.T) {
	t.Parallel()
	here := pgtest.Campaign(t)
	here.Do(
		`INSERT INTO NmsEventHisto (biEventHistoId, tsLastModified) SELECT k, '2000-01-01'
			FROM unnest(ARRAY[-9223372036854775808, -9223372036854775807, -2147483648, -1, 0, 1, 2147483647,
			9223372036854775806, 9223372036854775807]::bigint[]) AS k`,
	)
	here.MoveAway(here.Far(), "nmseventhisto")
	j := mustRun(t, here, nil, "expired-events")
	checkRows(t, here, "SELECT biEventHistoId::text FROM NmsEventHisto", "0")
	j.checkDeleted(t, "expired-events", 8)
}
