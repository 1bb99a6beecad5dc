package tasks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

var undoSeeds = flag.Int("undo-seeds", 24,
	"how many times TestUndoUnderChaos deletes, restores, expires or purges, and crashes what does so")

// undoServers is how many databases the seeds are spread over.
const undoServers = 4

// A run deletes with undo, or rows are restored, expire or are purged, and at a random moment the service or PostgreSQL
// is killed, sessions are ended, or the disk is full. Afterwards each row that ever existed is in its table or in the
// trash, unchanged and once, or counted as purged or expired. Each seed begins with what earlier ones left.
func TestUndoUnderChaos(t *testing.T) {
	suite.Only(t, suite.Faults)
	t.Parallel()
	pgtest.Empty(t) // skips the test without PostgreSQL
	program := buildProgram(t)
	var working sync.WaitGroup
	for server := range undoServers { // at once even if few tests run at once, since they wait for leases
		working.Go(func() {
			t.Run(fmt.Sprint("server ", server), func(t *testing.T) {
				u := newUndoChaos(t, program)
				for i := server; i < *undoSeeds && !t.Failed(); i += undoServers {
					u.seed(*firstSeed + uint64(i))
				}
				t.Logf("%v; %s", u.met, strings.Join(u.db.Strings(`SELECT concat_ws(' ', kind, 'trashed', sum(rows_trashed),
					'restored', sum(rows_restored), 'purged', sum(rows_purged), 'expired', sum(rows_expired))
					FROM cleanupd.trash GROUP BY kind`), ", "))
			})
		})
	}
	working.Wait()
}

type undoChaos struct {
	t       *testing.T
	db      *pgtest.DB
	server  *localpg.Server
	disk    *pgtest.Disk // nil if it cannot be filled
	replica *replica
	rng     *rand.Rand
	last    int // key
	met     map[string]int
}

// The tables of the test, each with a key and a text, so that a row has the same text in the trash.
var undoTables = []string{"xtksessioninfo", "visit", "page", "nmsvisitor"}

func newUndoChaos(t *testing.T, program string) *undoChaos {
	t.Helper()
	u := &undoChaos{t: t, met: map[string]int{}}
	u.db, u.server = pgtest.Private(t)
	var err error
	if u.disk, err = pgtest.OnDisk(t, u.db, u.server); err != nil {
		t.Logf("the disk cannot be filled: %v", err)
	}
	u.db.Do(`ALTER TABLE XtkSessionInfo ADD UNIQUE (sKey);
		ALTER TABLE NmsVisitor ADD UNIQUE (iVisitorId), ADD friend int REFERENCES NmsVisitor (iVisitorId);
		CREATE INDEX ON NmsVisitor (friend);
		CREATE TABLE visit (session varchar REFERENCES XtkSessionInfo (sKey) ON DELETE CASCADE, id int PRIMARY KEY,
			word text);
		CREATE TABLE page (visit int REFERENCES visit ON DELETE CASCADE, id int PRIMARY KEY, word text);
		CREATE INDEX ON visit (session); CREATE INDEX ON page (visit);
		CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.before (relation text, content text);
		INSERT INTO NmsDelivery (iDeliveryId) VALUES (0); INSERT INTO NmsGroup (iGroupId, iType) VALUES (1, 1)`)
	u.replica = newReplica(t, program, u.db.URL())
	// Most rows are obsolete.
	if _, err := u.replica.client.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{
		Guards: &cleanupv1.Guards{MaxSharePercent: new(100.0)},
	}); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *undoChaos) seed(seed uint64) {
	u.rng = rand.New(rand.NewPCG(seed, 6))
	u.fill()
	what := []string{"delete", "delete", "restore", "restore", "expire", "purge", "purge rows"}[u.rng.IntN(7)]
	ctx, cancel := context.WithTimeout(u.t.Context(), time.Minute)
	defer cancel()
	var working sync.WaitGroup
	if do := u.action(ctx, what); do != nil {
		working.Go(do)
	}
	time.Sleep(time.Duration(u.rng.IntN(120)) * time.Millisecond)
	how := u.crash()
	working.Wait()
	u.met[what+", "+how]++
	u.db.Until("SELECT (count(*) = 0)::int FROM cleanupd.run WHERE end_time IS NULL")
	u.check(fmt.Sprintf("seed %d, %s, %s", seed, what, how))
}

// fill adds obsolete rows and a work table, and records them in the same transaction.
func (u *undoChaos) fill() {
	first, n := u.last+1, 5+u.rng.IntN(400)
	u.last += n
	u.db.Do(fmt.Sprintf(`BEGIN;
		INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2000-01-01' FROM generate_series(%[1]d, %[2]d) i;
		INSERT INTO visit SELECT (%[1]d + i / 2)::text, %[1]d * 2 + i, md5(i::text) FROM generate_series(0, %[3]d * 2 - 1) i;
		INSERT INTO page SELECT %[1]d * 2 + i, %[1]d * 2 + i, repeat('x', i) FROM generate_series(0, %[3]d - 1) i;
		INSERT INTO NmsVisitor (iVisitorId, tsLastModified, friend)
			SELECT i, '2000-01-01', CASE WHEN i %% 5 = 1 AND i > %[1]d THEN i - 1 WHEN i %% 5 > 2 AND i < %[2]d THEN i + 1 END
			FROM generate_series(%[1]d, %[2]d) i;
		INSERT INTO XtkWorkflow (iWorkflowId, iState)
			SELECT 2, 20 WHERE NOT EXISTS (SELECT FROM XtkWorkflow WHERE iWorkflowId = 2);
		CREATE TABLE wkf2_%[1]d (i int); INSERT INTO wkf2_%[1]d VALUES (1), (2), (3);
		INSERT INTO elsewhere.before
			SELECT 'xtksessioninfo', t::text FROM XtkSessionInfo t WHERE sKey::int BETWEEN %[1]d AND %[2]d
			UNION ALL SELECT 'visit', t::text FROM visit t WHERE session::int BETWEEN %[1]d AND %[2]d
			UNION ALL SELECT 'page', t::text FROM page t WHERE visit >= %[1]d * 2
			UNION ALL SELECT 'nmsvisitor', t::text FROM NmsVisitor t WHERE iVisitorId BETWEEN %[1]d AND %[2]d
			UNION ALL SELECT 'wkf', 'wkf2_%[1]d';
		COMMIT`, first, u.last, n))
}

// action returns what the test does while it crashes something; nil if nothing is to be done.
func (u *undoChaos) action(ctx context.Context, what string) func() {
	request := func(call func() error) func() {
		return func() {
			switch err := call(); status.Code(err) {
			case codes.OK, codes.Unavailable, codes.NotFound, codes.AlreadyExists, codes.DeadlineExceeded, codes.Internal:
			default:
				u.t.Errorf("%s: %v", what, err)
			}
		}
	}
	deleting := request(func() error {
		stream, err := u.replica.client.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{
			Tasks: []string{"sessions", "visitors", "workflow-instances"}, Undo: durationpb.New(time.Hour), Detach: true,
		})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	})
	const anyRun = "SELECT run_id::text FROM cleanupd.trash WHERE end_time IS NULL AND rows_trashed > 0 " +
		"GROUP BY 1 ORDER BY 1"
	trashed := u.db.Strings(anyRun)
	if what == "delete" || len(trashed) == 0 {
		return deleting
	}
	run := trashed[u.rng.IntN(len(trashed))]
	switch what {
	case "restore":
		return request(func() error {
			stream, err := u.replica.client.RestoreTrash(ctx, &cleanupv1.RestoreTrashRequest{RunId: run, Detach: true})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		})
	case "purge":
		return request(func() error {
			_, err := u.replica.client.PurgeTrash(ctx, &cleanupv1.PurgeTrashRequest{RunId: run})
			return err
		})
	case "purge rows":
		id := fmt.Sprint(1 + u.rng.IntN(u.last))
		return request(func() error {
			_, err := u.replica.client.PurgeTrash(ctx, &cleanupv1.PurgeTrashRequest{
				Table: "xtksessioninfo", Where: map[string]string{"skey": id},
			})
			return err
		})
	}
	u.db.Do("UPDATE cleanupd.trash SET expire_time = now() WHERE run_id = $1::text::uuid", run)
	u.end() // a replica begins with what is due, and another run at once
	return deleting
}

func (u *undoChaos) end() {
	_, _ = u.replica.end(syscall.SIGKILL)
	for u.replica.start() != nil && u.t.Context().Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
}

func (u *undoChaos) crash() (how string) {
	switch kind := u.rng.IntN(5); {
	case kind == 0:
		if err := u.server.Restart(u.t.Context(), false); err != nil {
			u.t.Fatal(err)
		}
		u.db.Reset()
		return "PostgreSQL killed"
	case kind == 1:
		u.db.Superuser("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cleanupd'")
		return "sessions ended"
	case kind == 2:
		u.end()
		return "service killed"
	case kind == 3 && u.disk != nil:
		full := u.disk.Fill()
		time.Sleep(200 * time.Millisecond)
		if err := errors.Join(full, u.disk.Free()); err != nil {
			u.t.Error(err)
		}
		return "disk full"
	}
	return "nothing"
}

// check checks, in one snapshot, that each row that ever existed is still there, in the trash, or counted as purged or
// expired.
func (u *undoChaos) check(when string) {
	u.t.Helper()
	tx, err := u.db.BeginTx(u.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		u.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(u.t.Context())) }()
	// keeps entries from expiring in the meantime
	if _, err := tx.Exec(u.t.Context(), "LOCK TABLE cleanupd.hold IN ROW EXCLUSIVE MODE"); err != nil {
		u.t.Fatal(err)
	}
	type entry struct {
		Kind, Table, Name string
		Open              bool
		Rows, Gone        int64
	}
	rows, _ := tx.Query(u.t.Context(), `SELECT kind, (parse_ident(root))[2], name, end_time IS NULL,
		rows_trashed - rows_restored - rows_purged - rows_expired, rows_purged + rows_expired FROM cleanupd.trash`)
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	if err != nil {
		u.t.Fatal(err)
	}
	count := func(sql string, args ...any) (n int64) {
		u.t.Helper()
		if err := tx.QueryRow(u.t.Context(), sql, args...).Scan(&n); err != nil {
			u.t.Fatal(when, err)
		}
		return n
	}
	for _, table := range undoTables {
		now, gone := fmt.Sprintf("SELECT t::text FROM %s AS t", table), int64(0)
		for _, e := range entries {
			if e.Kind != "ROWS" || e.Table != table {
				continue
			}
			gone += e.Gone
			switch {
			case e.Open:
				now += fmt.Sprintf(" UNION ALL SELECT t::text FROM cleanupd_trash.%s AS t", e.Name)
				if in := count("SELECT count(*) FROM cleanupd_trash." + e.Name); in != e.Rows {
					u.t.Errorf("%s: %s has %d rows of %s, and its entry counts %d", when, e.Name, in, table, e.Rows)
				}
			case e.Rows != 0:
				u.t.Errorf("%s: %d rows of %s are counted in %s, which has ended", when, e.Rows, table, e.Name)
			}
		}
		before := "SELECT content FROM elsewhere.before WHERE relation = '" + table + "'"
		lost := count(fmt.Sprintf("SELECT count(*) FROM (%s EXCEPT ALL (%s)) AS l", before, now))
		more := count(fmt.Sprintf("SELECT count(*) FROM (%s EXCEPT ALL (%s)) AS l", now, before))
		if lost != gone || more != 0 {
			u.t.Errorf("%s: of %s, %d rows are nowhere, %d were purged or have expired, and %d are too many or changed", when,
				table, lost, gone, more)
		}
	}
	rows, _ = tx.Query(u.t.Context(), "SELECT relname::text FROM pg_class WHERE relname LIKE 'wkf2%'")
	here, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		u.t.Fatal(err)
	}
	gone := int64(0)
	for _, e := range entries {
		if e.Kind == "TABLE" {
			gone += e.Gone
			if e.Open {
				here = append(here, e.Table)
				if in := count("SELECT count(*) FROM cleanupd_trash." + e.Name); in != 3 {
					u.t.Errorf("%s: %s has %d rows, want 3", when, e.Name, in)
				}
			}
		}
	}
	slices.Sort(here)
	all, n := count("SELECT count(*) FROM elsewhere.before WHERE relation = 'wkf'"), int64(len(slices.Compact(here)))
	if n+gone/3 != all || int64(len(here)) != n {
		u.t.Errorf("%s: of %d work tables, %d are there or in the trash, and %d were purged or have expired", when, all, n,
			gone/3)
	}
}
