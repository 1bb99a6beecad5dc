package tasks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/badnet"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

var (
	faultSeeds = flag.Int("fault-seeds", 3,
		"how many random databases TestFaults makes; a third of it, rounded down, in each of some special settings")
	faultsWhere = flag.String("faults-where", "",
		"only in this setting: here, with a standby, with poison rows, in foreign tables, on Citus")
	onlyFault = flag.String("only-fault", "", "this fault alone, again and again, by its name")
)

// settings are the databases that are attacked. database returns a server if the test may restart it, and nil
// otherwise.
var settings = map[string]struct {
	database func(t *testing.T) (*pgtest.DB, *localpg.Server)
	prepare  func(db *pgtest.DB, m *model, rng *rand.Rand) // nil if the database needs no preparation
	standby  bool                                          // whether the server has an asynchronous standby
}{
	"here":              {private, nil, false},
	"with a standby":    {private, nil, true},
	"in foreign tables": {private, toForeignTables, false},
	"with poison rows": {
		private,
		func(db *pgtest.DB, m *model, rng *rand.Rand) { addFailingRows(db, m, rng, 200) },
		false,
	},
	"on Citus": {
		func(t *testing.T) (*pgtest.DB, *localpg.Server) { return pgtest.Citus(t), nil },
		toShards,
		false,
	},
}

func private(t *testing.T) (*pgtest.DB, *localpg.Server) { return pgtest.Private(t) }

// scene is a run under attack: two replicas, each behind its own network, on a separate server.
type scene struct {
	t        *testing.T
	rng      *rand.Rand
	db       *pgtest.DB
	server   *localpg.Server
	disk     *pgtest.Disk    // the disk of the database, nil if it cannot be filled
	standby  *localpg.Server // nil without a standby, and after a failover
	networks []*badnet.Proxy // between the replicas and the server
	reserves []*badnet.Proxy // between the replicas and the standby
	replicas []*replica
	revivals sync.WaitGroup
	app      *application
}

func always(happen func(s *scene, i int)) func(s *scene, i int) bool {
	return func(s *scene, i int) bool { happen(s, i); return true }
}

// faults are the faults of replica i, of its network and of the server. A fault returns false if it did not occur.
var faults = map[string]func(s *scene, i int) bool{
	"connections reset":           always(func(s *scene, i int) { s.networks[i].Cut() }),
	"half-closed to the server":   always(func(s *scene, i int) { s.networks[i].HalfClose(true) }),
	"half-closed to the replica":  always(func(s *scene, i int) { s.networks[i].HalfClose(false) }),
	"network silent for a while":  always(func(s *scene, i int) { s.networks[i].Stall(s.within(200, 2500)) }),
	"cut before COMMIT":           always(func(s *scene, i int) { s.networks[i].CutAtCommit(badnet.BeforeCommit) }),
	"cut between COMMIT and OK":   always(func(s *scene, i int) { s.networks[i].CutAtCommit(badnet.AfterCommit) }),
	"replica killed (SIGKILL)":    func(s *scene, i int) bool { return s.end(i, syscall.SIGKILL) },
	"replica stopped (SIGTERM)":   func(s *scene, i int) bool { return s.end(i, syscall.SIGTERM) },
	"replica frozen (SIGSTOP)":    always((*scene).freeze),
	"backends terminated":         always((*scene).terminate),
	"server restarted, fast":      func(s *scene, _ int) bool { return s.restart(true) },
	"server restarted, immediate": func(s *scene, _ int) bool { return s.restart(false) },
	"standby away for a while":    func(s *scene, _ int) bool { return s.stall() },
	"disk full for a while":       func(s *scene, _ int) bool { return s.fill() },
	lateStandby:                   (*scene).failOver,
}

// lateStandby is the name of the fault that occurs once in a scene.
const lateStandby = "failover to a late standby"

func (s *scene) within(from, to int) time.Duration {
	return time.Duration(from+s.rng.IntN(to-from)) * time.Millisecond
}

func (s *scene) end(i int, signal syscall.Signal) bool {
	running, err := s.replicas[i].end(signal)
	if !running { // it is still starting
		return false
	}
	if signal == syscall.SIGTERM && err != nil {
		s.t.Errorf("a replica ended with %v after SIGTERM", err)
	}
	s.revivals.Go(func() {
		for s.replicas[i].start() != nil && s.t.Context().Err() == nil {
			time.Sleep(50 * time.Millisecond)
		}
	})
	return true
}

// freeze stops a replica for longer than its lease, and continues it while another one claims its run.
func (s *scene) freeze(i int) {
	s.replicas[i].signal(syscall.SIGSTOP)
	wake := s.within(1_100, 2_500)
	s.revivals.Go(func() {
		time.Sleep(wake)
		s.replicas[i].signal(syscall.SIGCONT)
	})
}

func (s *scene) superuser(sql string) {
	conn, err := pgx.Connect(s.t.Context(), s.db.As("postgres"))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(s.t.Context(), sql); err != nil {
		s.t.Error(err)
	}
}

func (s *scene) terminate(int) {
	s.superuser(
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cleanupd' AND random() < 0.5")
}

func (s *scene) restart(fast bool) bool {
	if s.server == nil { // other tests use the server, too
		return false
	}
	if err := s.server.Restart(s.t.Context(), fast); err != nil {
		s.t.Error(err)
	}
	return true
}

// stall makes each COMMIT wait for a missing synchronous standby, for up to four seconds.
func (s *scene) stall() bool {
	if s.server == nil { // other tests use the server, too
		return false
	}
	for _, name := range []string{"nobody", ""} {
		s.superuser("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'")
		s.superuser("SELECT pg_reload_conf()")
		if name != "" {
			time.Sleep(s.within(200, 4000))
		}
	}
	return true
}

// fill fills the disk of the tables for up to four seconds.
func (s *scene) fill() bool {
	if s.disk == nil {
		return false
	}
	if err := s.disk.Fill(); err != nil {
		s.t.Error(err)
	}
	time.Sleep(s.within(200, 4000))
	if err := s.disk.Free(); err != nil {
		s.t.Error(err)
	}
	return true
}

// failOver promotes the standby, which lacks the commits of the last seconds. The application does not commit in this
// time, so that the test knows its writes.
func (s *scene) failOver(int) bool {
	if s.standby == nil {
		return false
	}
	s.app.mu.Lock()
	defer s.app.mu.Unlock()
	err := s.standby.FallBehind(s.t.Context(), s.server)
	time.Sleep(s.within(100, 1500))
	s.server.Crash()
	if err := errors.Join(err, s.standby.Promote(s.t.Context())); err != nil {
		s.t.Error(err)
	}
	s.db.MoveTo(s.standby)
	s.server, s.standby, s.networks = s.standby, nil, s.reserves
	return true
}

// A run ends despite faults of its replicas, their network and the database. It has deleted the rows that are obsolete
// at its reference time, and no others. Its counts are exact. Every watcher gets every event once, except for events
// that were reported as lost.
func TestFaults(t *testing.T) {
	suite.Only(t, suite.Faults)
	t.Parallel()
	pgtest.Empty(t) // skips the test without PostgreSQL
	program := buildProgram(t)
	var mu sync.Mutex
	met := map[string]int{}
	t.Run("logs", func(t *testing.T) {
		for where, setting := range settings {
			seeds := *faultSeeds
			if setting.prepare != nil || setting.standby {
				seeds /= 3
			}
			for i := range seeds {
				if *faultsWhere != "" && *faultsWhere != where {
					continue
				}
				seed := *firstSeed + uint64(i)
				t.Run(fmt.Sprintf("%s, seed %d", where, seed), func(t *testing.T) {
					t.Parallel()
					s := &scene{t: t, rng: rand.New(rand.NewPCG(seed, 4))}
					s.db, s.server = setting.database(t)
					switch {
					case setting.standby:
						s.addStandby()
					case s.server != nil:
						var err error
						if s.disk, err = pgtest.OnDisk(t, s.db, s.server); err != nil {
							t.Logf("the disk cannot be filled: %v", err)
						}
					}
					for name, n := range s.underFaults(program, seed, setting.prepare) {
						mu.Lock()
						met[name] += n
						mu.Unlock()
					}
				})
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(met)) {
		t.Logf("%4d × %s", met[name], name)
	}
}

func (s *scene) addStandby() {
	s.t.Helper()
	standby, err := s.server.AsynchronousStandby(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(standby.Stop)
	s.standby = standby
	s.db.Reset()
}

// underFaults creates a random database, attacks its run, and checks the result. It returns how often each fault
// occurred.
func (s *scene) underFaults(
	program string, seed uint64, prepare func(db *pgtest.DB, m *model, rng *rand.Rand),
) map[string]int {
	t := s.t
	// Dates are relative to a time shortly before the run, whose cutoffs are a little later.
	m := randomDatabase(t, s.db, seed, time.Now().Add(30*time.Minute).Truncate(time.Microsecond))
	// A crash empties unlogged tables, and the test later adds tables.
	addHistory(s.rng, s.db, m, "unlogged", "published")
	original := m.keys()
	if prepare != nil {
		prepare(s.db, m, s.rng)
	}
	s.db.Do("CREATE TABLE elsewhere.application (token bigint)")
	for range 2 {
		network := badnet.New(t, s.db.URL(), time.Millisecond)
		s.networks = append(s.networks, network)
		address := network.URL(s.db.URL())
		if s.standby != nil {
			reserve := badnet.New(t, s.standby.URL("", ""), time.Millisecond)
			s.reserves = append(s.reserves, reserve)
			address = withBothHosts(address, reserve.URL(address))
		}
		s.replicas = append(s.replicas, newReplica(t, program, address))
	}
	stream, err := s.replicas[0].client.RunCleanup(t.Context(),
		&cleanupv1.RunCleanupRequest{Detach: true, ContinueOnError: m.failing != nil})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	id := first.GetEvent().GetRunId()

	app := &application{db: s.db, rng: rand.New(rand.NewPCG(seed, 5)), m: m, done: map[row]fate{}}
	s.app = app
	running, ended := context.WithTimeout(t.Context(), 3*time.Minute) // longer than any run
	var beside, watching sync.WaitGroup
	beside.Go(func() { app.work(running, t) })
	seen := make([][]*cleanupv1.RunEvent, 3)
	for i := range seen {
		watching.Go(func() { seen[i] = follow(running, t, s.replicas[i%2:], id, nil) })
	}
	met := map[string]int{}
	beside.Go(func() { s.attack(running, met) })
	watching.Wait()
	ended()
	beside.Wait()
	s.revivals.Wait()
	if err := app.outlive(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, enough := context.WithTimeout(t.Context(), 3*time.Minute) // the last events may have been lost, too
	defer enough()
	for i := range seen {
		seen[i] = follow(again, t, s.replicas[i%2:], id, seen[i])
	}

	events := seen[0]
	for _, other := range seen[1:] {
		if !slices.EqualFunc(events, other, func(a, b *cleanupv1.RunEvent) bool { return proto.Equal(a, b) }) {
			t.Errorf("one watcher got %d events, another %d: not the same ones", len(events), len(other))
		}
	}
	if s.server == nil { // transactions that ended sessions had prepared
		s.superuser("SELECT recover_prepared_transactions()")
	}
	var places []string
	for _, e := range events {
		places = append(places, fmt.Sprint(e.GetSequence(), " ", e.GetLogGeneration()))
	}
	stored := s.db.Strings("SELECT concat_ws(' ', sequence, generation) FROM cleanupd.event ORDER BY sequence")
	if !slices.Equal(stored, places) {
		t.Errorf("%d events are stored, watchers got %d: not the same ones", len(stored), len(places))
	}
	if len(events) == 0 {
		return met
	}
	run := events[len(events)-1].GetRunFinished().GetRun()
	failedRows := m.failing != nil && strings.Contains(run.GetError(), "rows failed")
	if run.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED && !failedRows {
		t.Errorf("the run ended %s: %s", run.GetState(), run.GetError())
	}
	m.now = run.GetReferenceTime().AsTime()
	m.run()
	app.adjust(t)
	compare(t, "attacked", contents(t, s.db, m, original), m.contents(original))
	compare(t, "attacked",
		s.db.Strings("SELECT concat_ws(' ', account, remote_id, delivery_id, label) FROM cleanupd.remote_delivery"),
		m.recorded)
	var counted, want [4]int64
	left := int64(0)
	for _, r := range run.GetResults() {
		left += r.GetRemoteDeliveriesRetained()
		counted[0] += r.GetRowsDeleted()
		counted[1] += r.GetRowsUpdated()
		counted[2] += r.GetTablesDropped()
		counted[3] -= r.GetRowsCascaded()
		for _, s := range r.GetSpace() {
			counted[3] += s.GetRowsDeleted()
		}
	}
	if want = [4]int64{m.deleted, m.updated, m.dropped, m.deleted}; counted != want {
		t.Errorf("deleted, updated, dropped, and deleted by table: %v, want %v", counted, want)
	}
	if left != int64(len(m.recorded)) {
		t.Errorf("%d remote deliveries were counted as recorded, want %d", left, len(m.recorded))
	}
	if t.Failed() {
		for _, e := range events {
			if e.GetLog().GetLevel() == cleanupv1.LogLevel_LOG_LEVEL_WARNING {
				t.Log(e.GetSequence(), e.GetTime().AsTime().Format("05.000"), e.GetLog().GetTask(),
					e.GetLog().GetMessage())
			}
		}
	}
	t.Logf("%d events, %d rows of the application, %s", len(events), len(app.done),
		strings.Join(slices.Sorted(maps.Keys(met)), ", "))
	return met
}

func withBothHosts(first, second string) string {
	u, err := url.Parse(first)
	if err != nil {
		panic(err)
	}
	other, err := url.Parse(second)
	if err != nil {
		panic(err)
	}
	u.Host += "," + other.Host
	return u.String()
}

// attack causes up to 12 faults, until the run has ended.
func (s *scene) attack(ctx context.Context, met map[string]int) {
	names := slices.Sorted(maps.Keys(faults))
	if s.standby != nil { // it occurs once, and should be likely
		names = append(names, slices.Repeat([]string{lateStandby}, len(names)/2)...)
	}
	if *onlyFault != "" {
		names = []string{*onlyFault}
	}
	for range 12 {
		if wait(ctx, s.within(20, 500)); ctx.Err() != nil {
			return
		}
		name := names[s.rng.IntN(len(names))]
		if faults[name](s, s.rng.IntN(len(s.replicas))) {
			met[name]++
		}
	}
}
