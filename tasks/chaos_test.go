package tasks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

var chaosSeeds = flag.Int("chaos-seeds", 2,
	"how many pairs of random databases TestHoldsUnderChaos makes; AEM Forms is on PostgreSQL and on MySQL in turn")

// Holds are created and released at random while two replicas clean a Campaign database, erase and purge process
// instances of AEM Forms, and sweep their documents. The replicas are killed again and again. Triggers log every
// deletion. No row on hold is deleted after CreateHold has returned and before ReleaseHold is called. Runs and receipts
// count exactly the logged deletions. Once all holds are released, a run deletes the remaining obsolete rows.
func TestHoldsUnderChaos(t *testing.T) {
	suite.Only(t, suite.Faults)
	t.Parallel()
	pgtest.Empty(t) // skips the test without PostgreSQL
	program := buildProgram(t)
	t.Run("seeds", func(t *testing.T) {
		for i := range *chaosSeeds {
			seed := *firstSeed + uint64(i)
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				c := newChaos(t, program, seed)
				c.work()
				c.finish()
				c.checkHolds()
				c.checkCounts()
			})
		}
	})
}

const chaosInstances = 80

// chaos is a Campaign database and a Forms database that two replicas clean.
type chaos struct {
	t        *testing.T
	seed     uint64
	m        *model // the initial Campaign database
	campaign *pgtest.DB
	forms    interface {
		Do(statement string, args ...any)
		Int(query string, args ...any) int64
	}
	formsTables []string
	orphans     []int // ids of orphan tasks
	scene       *scene
	holds       []*placedHold
}

type placedHold struct {
	*cleanupv1.Hold
	from, to time.Time        // when CreateHold had returned, and when ReleaseHold was first called
	rows     map[string]int64 // rows on hold at from, by table
}

func newChaos(t *testing.T, program string, seed uint64) *chaos {
	t.Helper()
	c := &chaos{t: t, seed: seed, campaign: pgtest.Campaign(t)}
	c.m = randomDatabase(t, c.campaign, seed, time.Now().Add(30*time.Minute).Truncate(time.Microsecond))
	c.logCampaignDeletions()
	forms := c.makeForms()
	c.forms.Do("ALTER TABLE tb_process_instance ADD ended date")
	c.forms.Do("UPDATE tb_process_instance SET ended = '2020-01-01' WHERE id % 2 = 0")
	c.scene = &scene{t: t, rng: c.random("kills"), db: c.campaign}
	for range 2 {
		c.scene.replicas = append(c.scene.replicas,
			newReplica(t, program, c.campaign.URL(), "--forms-database-url", forms, "--forms-gds-in-database"))
	}
	purge := &cleanupv1.FormsPurge{Name: "loans", Application: "Loans", DateColumn: "ended", Days: 100, Enabled: true}
	request := &cleanupv1.SetFormsPurgeRequest{Purge: purge}
	if _, err := c.scene.replicas[0].userData.SetFormsPurge(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *chaos) makeForms() (url string) {
	c.t.Helper()
	data := formsdb.Generate(c.random("forms"), chaosInstances, false)
	for _, table := range data.Tables {
		if strings.HasPrefix(table.Name, "tb_") {
			c.formsTables = append(c.formsTables, table.Name)
		}
	}
	for _, row := range data.Table("tb_task").Rows {
		if row[3] == int64(0) {
			c.orphans = append(c.orphans, int(row[0].(int64)))
		}
	}
	const log = "CREATE TABLE deletion (at decimal(20, 6), relation varchar(64))"
	if c.seed%2 == 0 {
		db := mysqltest.Empty(c.t, "utf8mb4")
		db.Do(formsdb.MySQLSchema)
		if err := data.LoadMySQL(c.t.Context(), db.DB, ""); err != nil {
			c.t.Fatal(err)
		}
		db.Do(log)
		for _, table := range c.formsTables {
			db.Do(fmt.Sprintf(`CREATE TRIGGER log_%[1]s AFTER DELETE ON %[1]s FOR EACH ROW
				INSERT INTO deletion VALUES (UNIX_TIMESTAMP(SYSDATE(6)) + SLEEP(0.002), '%[1]s')`, table))
		}
		c.forms = db
		return db.URL("root")
	}
	db := pgtest.Empty(c.t)
	db.Do(formsdb.Schema)
	conn, err := pgx.Connect(c.t.Context(), db.URL())
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if err := data.Load(c.t.Context(), conn, ""); err != nil {
		c.t.Fatal(err)
	}
	db.Do(log)
	db.Do(`CREATE FUNCTION log_deletion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO deletion VALUES (extract(epoch FROM clock_timestamp()), TG_TABLE_NAME);
		PERFORM pg_sleep(0.002);
		RETURN NULL; END $$`)
	for _, table := range c.formsTables {
		db.Do(fmt.Sprintf("CREATE TRIGGER log AFTER DELETE ON %s FOR EACH ROW EXECUTE FUNCTION log_deletion()", table))
	}
	c.forms = db
	return db.URL()
}

// logCampaignDeletions creates triggers that log deleted rows. They are slow, so that holds are created during a batch.
func (c *chaos) logCampaignDeletions() {
	c.t.Helper()
	c.campaign.Do(`CREATE TABLE elsewhere.deletion (at decimal(20, 6), relation text, content jsonb);
		CREATE FUNCTION elsewhere.log_deletion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO elsewhere.deletion
			VALUES (extract(epoch FROM clock_timestamp()), TG_ARGV[0], to_jsonb(OLD));
		PERFORM pg_sleep(0.002);
		RETURN NULL; END $$`)
	for _, table := range c.m.db.Tables {
		c.campaign.Do(fmt.Sprintf(`CREATE TRIGGER log AFTER DELETE ON %[1]s
			FOR EACH ROW EXECUTE FUNCTION elsewhere.log_deletion('%[1]s')`, table.Name))
	}
}

func (c *chaos) random(part string) *rand.Rand {
	sum := c.seed
	for _, b := range []byte(part) {
		sum = sum*31 + uint64(b)
	}
	return rand.New(rand.NewPCG(c.seed, sum))
}

// replica returns one of the replicas, which may be down.
func (c *chaos) replica(rng *rand.Rand) *replica {
	return c.scene.replicas[rng.IntN(len(c.scene.replicas))]
}

func (c *chaos) work() {
	ctx, stop := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer stop()
	var cleaning, disturbing sync.WaitGroup
	cleaning.Go(func() { c.clean(ctx) })
	cleaning.Go(func() { c.erase(ctx) })
	disturbing.Go(func() { c.hold(ctx) })
	disturbing.Go(func() { c.kill(ctx) })
	cleaning.Wait()
	stop()
	disturbing.Wait()
	c.scene.revivals.Wait()
}

func (c *chaos) clean(ctx context.Context) {
	rng := c.random("runs")
	for range 3 {
		stream, err := c.replica(rng).client.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{Detach: true})
		if err == nil {
			_, _ = stream.Recv()
		}
		for c.active(ctx) > 0 {
			wait(ctx, 50*time.Millisecond)
		}
	}
}

// active returns how many runs have not ended, or 0 once the context ends.
func (c *chaos) active(ctx context.Context) (n int64) {
	err := c.campaign.QueryRow(ctx, "SELECT count(*) FROM cleanupd.run WHERE end_time IS NULL").Scan(&n)
	if err != nil && ctx.Err() == nil {
		c.t.Error(err)
	}
	return n
}

// wait waits for a while, or until the context ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (c *chaos) erase(ctx context.Context) {
	rng := c.random("erasures")
	c.sweep(ctx, rng)
	c.campaign.Do("UPDATE cleanupd.dead_session SET found_time = found_time - interval '2 hours'")
	const atOnce = 8
	for first := 1; first <= chaosInstances; first += atOnce {
		var instances, tasks []string
		for id := first; id < first+atOnce; id++ {
			instances = append(instances, strconv.Itoa(id))
			tasks = append(tasks, strconv.Itoa(c.orphans[id-1]))
		}
		for _, request := range []*cleanupv1.EraseUserDataRequest{{ProcessInstanceIds: instances}, {TaskIds: tasks}} {
			stream, err := c.replica(rng).userData.EraseUserData(ctx, request)
			c.drain(err, func() error { _, err := stream.Recv(); return err })
		}
		if rng.IntN(3) == 0 {
			c.sweep(ctx, rng)
		}
	}
}

func (c *chaos) sweep(ctx context.Context, rng *rand.Rand) {
	stream, err := c.replica(rng).userData.SweepDocuments(ctx, &cleanupv1.SweepDocumentsRequest{})
	c.drain(err, func() error { _, err := stream.Recv(); return err })
}

// drain receives the events of an erasure. The erasure continues if the connection to its replica is lost.
func (c *chaos) drain(err error, receive func() error) {
	for err == nil {
		err = receive()
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.FailedPrecondition, codes.Canceled, codes.DeadlineExceeded:
	default:
		if !errors.Is(err, io.EOF) {
			c.t.Error(err)
		}
	}
}

func (c *chaos) kill(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, c.scene.within(100, 2500))
		c.scene.end(c.scene.rng.IntN(len(c.scene.replicas)), syscall.SIGKILL)
	}
}

// hold creates and releases holds until the context ends. A few are active at a time.
func (c *chaos) hold(ctx context.Context) {
	rng := c.random("holds")
	var inForce []*placedHold
	for ctx.Err() == nil {
		if len(inForce) > 0 && rng.IntN(5) < len(inForce) {
			i := rng.IntN(len(inForce))
			c.release(ctx, rng, inForce[i])
			inForce = append(inForce[:i], inForce[i+1:]...)
		} else if h := c.create(ctx, rng); h != nil {
			inForce = append(inForce, h)
		}
		wait(ctx, time.Duration(rng.IntN(400))*time.Millisecond)
	}
	for _, h := range inForce {
		c.release(c.t.Context(), rng, h)
	}
}

// create creates a random hold. It returns nil if CreateHold failed, although the hold may exist.
func (c *chaos) create(ctx context.Context, rng *rand.Rand) *placedHold {
	out, err := c.replica(rng).client.CreateHold(ctx, &cleanupv1.CreateHoldRequest{Hold: c.randomHold(rng)})
	if err != nil {
		if status.Code(err) != codes.Unavailable && ctx.Err() == nil {
			c.t.Error(err)
		}
		return nil
	}
	h := &placedHold{Hold: out.GetHold(), from: time.Now()}
	h.rows = c.rowsOnHold(h.Hold)
	c.holds = append(c.holds, h)
	return h
}

// release checks that no row on hold is missing, and releases the hold.
func (c *chaos) release(ctx context.Context, rng *rand.Rand, h *placedHold) {
	now := c.rowsOnHold(h.Hold)
	for table, n := range h.rows {
		if now[table] < n {
			c.t.Errorf("%v: %s had %d rows on hold when it was created, and has %d", h, table, n, now[table])
		}
	}
	h.to = time.Now()
	for ctx.Err() == nil {
		_, err := c.replica(rng).client.ReleaseHold(ctx, &cleanupv1.ReleaseHoldRequest{HoldId: h.GetId()})
		if status.Code(err) != codes.Unavailable {
			if err != nil && ctx.Err() == nil {
				c.t.Error(err)
			}
			return
		}
		wait(ctx, 50*time.Millisecond)
	}
}

func (c *chaos) randomHold(rng *rand.Rand) *cleanupv1.Hold {
	rows := func(table, column string) *cleanupv1.HeldRows {
		out := &cleanupv1.HeldRows{}
		ids := slices.Sorted(maps.Keys(c.m.ids(table, column)))
		for range 20 {
			if len(ids) > 0 {
				out.Ids = append(out.Ids, ids[rng.IntN(len(ids))])
			}
		}
		out.Ids = slices.DeleteFunc(out.Ids, func(id int64) bool { return id == 0 })
		return out
	}
	h := &cleanupv1.Hold{Reason: "chaos"}
	switch rng.IntN(7) {
	case 0:
		h.What = &cleanupv1.Hold_Deliveries{Deliveries: rows("NmsDelivery", "iDeliveryId")}
	case 1:
		h.What = &cleanupv1.Hold_Lists{Lists: rows("NmsGroup", "iGroupId")}
	case 2:
		h.What = &cleanupv1.Hold_Workflows{Workflows: rows("XtkWorkflow", "iWorkflowId")}
	case 3, 4:
		h.What = &cleanupv1.Hold_Recipients{Recipients: rows("NmsBroadLogRcp", "iRecipientId")}
	case 5:
		table := c.m.db.Tables[rng.IntN(len(c.m.db.Tables))]
		h.What = &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: table.Name}}
	}
	if h.What == nil || (len(idsOf(h)) == 0 && h.GetTable() == nil) {
		h.What = &cleanupv1.Hold_Everything{Everything: &cleanupv1.HeldEverything{}}
	}
	return h
}

func idsOf(h *cleanupv1.Hold) []int64 {
	return slices.Concat(h.GetDeliveries().GetIds(), h.GetLists().GetIds(), h.GetWorkflows().GetIds(),
		h.GetRecipients().GetIds())
}

// namedBy returns the SQL condition that a hold names a row. The condition uses the columns relation and content.
func namedBy(h *cleanupv1.Hold) string {
	var ids []string
	for _, id := range idsOf(h) {
		ids = append(ids, fmt.Sprintf("'%d'", id))
	}
	has := func(column string) string {
		return fmt.Sprintf("content ->> '%s' IN (%s)", column, strings.Join(ids, ", "))
	}
	switch h.GetWhat().(type) {
	case *cleanupv1.Hold_Deliveries:
		return "CASE relation WHEN 'xtkjoblog' THEN " + has("ijobid") + " ELSE " + has("ideliveryid") + " END"
	case *cleanupv1.Hold_Lists:
		return "relation IN ('nmsgroup', 'nmsrcpgrprel') AND " + has("igroupid")
	case *cleanupv1.Hold_Workflows:
		return has("iworkflowid")
	case *cleanupv1.Hold_Recipients:
		return has("irecipientid")
	case *cleanupv1.Hold_Table:
		return "relation = '" + h.GetTable().GetName() + "'"
	}
	return "true"
}

func (c *chaos) rowsOnHold(h *cleanupv1.Hold) map[string]int64 {
	var tables []string
	for _, t := range c.m.db.Tables {
		tables = append(tables, fmt.Sprintf("SELECT '%[1]s' AS relation, to_jsonb(t) AS content FROM %[1]s t", t.Name))
	}
	count := fmt.Sprintf("SELECT relation, count(*) FROM (%s) t WHERE %s GROUP BY relation",
		strings.Join(tables, " UNION ALL "), namedBy(h))
	rows, err := c.campaign.Query(context.Background(), count)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	var (
		out   = map[string]int64{}
		table string
		n     int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&table, &n}, func() error { out[table] = n; return nil }); err != nil {
		c.t.Error(err)
	}
	if h.GetEverything() != nil {
		for _, table := range c.formsTables {
			out[table] = c.forms.Int("SELECT count(*) FROM " + table)
		}
	}
	return out
}

// finish releases all holds, waits for the last run and the erasures, and runs the pipeline twice. The second run
// deletes the rows that the first one retained because of rows that a later task deleted.
func (c *chaos) finish() {
	rng := c.random("end")
	client := c.scene.replicas[0].client
	list, err := client.ListHolds(c.t.Context(), &cleanupv1.ListHoldsRequest{PageSize: 1000}, grpc.WaitForReady(true))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, h := range list.GetHolds() {
		c.release(c.t.Context(), rng, &placedHold{Hold: h})
	}
	c.campaign.Until("SELECT (count(*) = 0)::int FROM cleanupd.run WHERE end_time IS NULL")
	c.campaign.Until("SELECT (count(*) = 0)::int FROM cleanupd.erasure WHERE end_time IS NULL")
	for range 2 {
		stream, err := client.RunCleanup(c.t.Context(), &cleanupv1.RunCleanupRequest{}, grpc.WaitForReady(true))
		var last *cleanupv1.RunCleanupResponse
		for err == nil {
			var m *cleanupv1.RunCleanupResponse
			if m, err = stream.Recv(); err == nil {
				last = m
			}
		}
		run := last.GetEvent().GetRunFinished().GetRun()
		if !errors.Is(err, io.EOF) || run.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED {
			c.t.Errorf("the last run ended with %v: %v", err, run)
		}
	}
	n := c.forms.Int(`SELECT count(*) FROM tb_process_instance WHERE ended IS NOT NULL AND status IN (2, 4)
		AND id IN (SELECT process_instance_id FROM tb_101 UNION SELECT process_instance_id FROM tb_102)`)
	if n != 0 {
		c.t.Errorf("%d obsolete process instances remain", n)
	}
}

// checkHolds checks that no row was deleted while it was on hold.
func (c *chaos) checkHolds() {
	for _, h := range c.holds {
		meanwhile := fmt.Sprintf("at * 1000000 BETWEEN %d AND %d", h.from.UnixMicro(), h.to.UnixMicro())
		named := fmt.Sprintf("SELECT concat_ws(' ', relation, at, content) FROM elsewhere.deletion WHERE %s AND (%s)",
			meanwhile, namedBy(h.Hold))
		deleted := c.campaign.Strings(named)
		if len(deleted) > 0 {
			c.t.Errorf("%v: %d rows on hold were deleted, such as %s", h, len(deleted), deleted[0])
		}
		if h.GetEverything() != nil {
			if n := c.forms.Int("SELECT count(*) FROM deletion WHERE " + meanwhile); n > 0 {
				c.t.Errorf("%v: %d rows of AEM Forms were deleted", h, n)
			}
		}
	}
}

func (c *chaos) checkCounts() {
	const purges = "name LIKE 'forms/%'"
	for _, line := range c.campaign.Strings(`
		WITH run AS (SELECT trim('"' FROM split_part(relation, '.', -1)) AS relation, sum(rows_deleted) AS n
			FROM cleanupd.space GROUP BY 1),
			log AS (SELECT relation, count(*) AS n FROM elsewhere.deletion GROUP BY 1)
		SELECT format('%s: %s by the runs, %s by the log', relation, run.n, log.n) FROM run FULL
			JOIN log USING (relation)
		WHERE COALESCE(run.n, 0) <> COALESCE(log.n, 0)`) {
		c.t.Errorf("deleted rows of %s", line)
	}
	counted := c.campaign.Int("SELECT sum(rows_deleted + rows_cascaded) FROM cleanupd.task WHERE NOT " + purges)
	if byTable := c.campaign.Int("SELECT sum(rows_deleted) FROM cleanupd.space"); counted != byTable {
		c.t.Errorf("the tasks count %d deleted rows, their tables %d", counted, byTable)
	}
	receipts := "SELECT COALESCE(sum(rows), 0) FROM cleanupd.erasure_rows JOIN cleanupd.erasure ON id = erasure_id"
	logged := c.forms.Int("SELECT count(*) FROM deletion")
	if counted := c.campaign.Int(receipts); counted != logged {
		c.t.Errorf("the receipts count %d deleted rows of AEM Forms, the log has %d", counted, logged)
	}
	purged := c.campaign.Int("SELECT sum(rows_deleted) FROM cleanupd.task WHERE " + purges)
	if counted := c.campaign.Int(receipts + " WHERE purge IS NOT NULL"); counted != purged {
		c.t.Errorf("the receipts count %d purged rows, the runs %d", counted, purged)
	}
	c.t.Logf("%d holds; %d rows of Campaign and %d of AEM Forms were deleted", len(c.holds), counted, logged)
}
