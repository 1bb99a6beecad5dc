package tasks_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

func TestMain(m *testing.M) { pgtest.Main(m, mysqltest.Stop) }

var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

type journal struct {
	db       *pgtest.DB
	task     string
	states   map[string]cleanup.State
	problems map[string]string
	deleted  map[string]int64
	rows     map[string]int64 // deleted rows, without dropped tables
	updated  map[string]int64
	cascaded map[string]int64
	dropped  map[string]int64 // work tables
	removed  map[string]int64 // partitions
	retained map[string]purge.Retained
	details  map[string]string
	previews map[string][]cleanup.PreviewTable
	planned  map[string]cleanup.SavedTask
	expected map[string]int64
	recorded int64
	batches  []purge.Delta
	logs     []string
	taskLogs map[string][]string // logs by task
	emptied  map[string][]string
	cursor   purge.Cursor // of the current task, as last committed
	// loseAt is the number of the batch at which the worker dies, before or after its commit; 0 if it does not die.
	loseAt int
	after  bool
	// beforeCommit is called before each commit, and may queue statements. It may be nil.
	beforeCommit func(b *pgx.Batch, d purge.Delta)
	// onFailure is returned if a commit fails, instead of its error, unless nil.
	onFailure error
	// history is the history that guards compare with. Guards are not evaluated if it is nil.
	history *guard.History
	// holds returns the current holds, and may be nil. creates is how many were created. A batch fails if it began
	// before the last of them was created.
	holds          func() rules.Holds
	creates, known int
	// committed is called after each batch; it may be nil.
	committed func()
	// proceed returns an error if the run must stop. It is called outside batches, and may be nil.
	proceed func() error
}

func (j *journal) TaskStarted(_ context.Context, task string) error {
	j.task, j.cursor = task, purge.Cursor{}
	return nil
}

func (j *journal) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	dies := j.loseAt > 0 && len(j.batches)+1 >= j.loseAt
	if dies && !j.after {
		return nil, cleanup.ErrLost
	}
	if j.beforeCommit != nil {
		j.beforeCommit(b, d)
	}
	if j.known < j.creates {
		return nil, cleanup.ErrHoldCreated
	}
	return func(err error) error {
		if err != nil {
			return cmp.Or(j.onFailure, err)
		}
		j.cursor = d.Cursor
		for _, s := range d.Space {
			if s.Rows > 0 && !slices.Contains(j.emptied[j.task], s.Relation) {
				j.emptied[j.task] = append(j.emptied[j.task], s.Relation)
			}
		}
		j.recorded += d.Recorded
		j.deleted[j.task] += d.Deleted + d.Dropped
		j.rows[j.task] += d.Deleted
		j.updated[j.task] += d.Updated
		j.cascaded[j.task] += d.Cascaded
		j.dropped[j.task] += d.Dropped
		j.removed[j.task] += d.Partitions
		j.batches = append(j.batches, d)
		if j.committed != nil {
			j.committed()
		}
		if dies {
			return cleanup.ErrLost
		}
		return nil
	}, nil
}

func (j *journal) Holds(context.Context) (rules.Holds, error) {
	j.known = j.creates
	if j.holds == nil {
		return rules.Holds{}, nil
	}
	return j.holds(), nil
}

func (j *journal) Count(_ context.Context, d purge.Delta) error {
	if d.Space != nil {
		return errors.New("a dry run has emptied nothing")
	}
	j.deleted[j.task] += d.Deleted + d.Dropped
	j.updated[j.task] += d.Updated
	j.cascaded[j.task] += d.Cascaded
	j.dropped[j.task] += d.Dropped
	j.removed[j.task] += d.Partitions
	j.recorded += d.Recorded
	return nil
}

const recording = "CREATE SCHEMA IF NOT EXISTS kept; CREATE TABLE IF NOT EXISTS kept.delivery (account text, there " +
	"bigint, here bigint, label text)"

// DoneByTable returns nothing: no test resumes a task of a saved plan.
func (j *journal) DoneByTable(context.Context) ([]purge.Space, error) { return nil, nil }

func (j *journal) PolicyChange(context.Context, rules.Task) (*message.Message, error) {
	return nil, nil
}

func (j *journal) History(context.Context) (*guard.History, error) { return j.history, nil }

func (j *journal) RecordRemote(query sqlexpr.Expr) sqlexpr.Expr {
	j.db.Do(recording)
	return sqlexpr.Format("INSERT INTO kept.delivery %s", query)
}

func (j *journal) RemoteIDs(ctx context.Context, account string) ([]int64, error) {
	j.db.Do(recording)
	rows, err := j.db.Query(ctx, "SELECT there FROM kept.delivery WHERE account = $1", account)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func (j *journal) ForgetRemote(ctx context.Context, account string, ids []int64) error {
	_, err := j.db.Exec(ctx, "DELETE FROM kept.delivery WHERE account = $1 AND there = ANY ($2)", account, ids)
	return err
}

// recordedRemotes returns the recorded remote deliveries: account, remote id, id, label.
func recordedRemotes(db *pgtest.DB) []string {
	if db.Int("SELECT count(*) FROM pg_class WHERE oid = to_regclass('kept.delivery')") == 0 {
		return nil
	}
	return db.Strings("SELECT concat_ws(' ', account, there, here, label) FROM kept.delivery ORDER BY 1")
}

func (j *journal) Proceed(context.Context) error {
	if j.loseAt > 0 && len(j.batches)+1 >= j.loseAt {
		return cleanup.ErrLost
	}
	if j.proceed != nil {
		return j.proceed()
	}
	return nil
}

func (j *journal) Emptied(_ context.Context, task string) ([]string, error) {
	if task == "" {
		return slices.Concat(slices.Collect(maps.Values(j.emptied))...), nil
	}
	return j.emptied[task], nil
}

func (j *journal) At(_ string, expected int64) { j.expected[j.task] = expected }

func (j *journal) Scanning(purge.Scan) {}

func (j *journal) Throttled(purge.Throttle) {}

func (j *journal) Retried(string) {}

func (j *journal) Log(_ context.Context, messages ...message.Message) error {
	for _, m := range messages {
		line := string(m.Level) + " " + m.Text
		j.logs, j.taskLogs[j.task] = append(j.logs, line), append(j.taskLogs[j.task], line)
	}
	return nil
}

func (j *journal) Done() int64 { return j.rows[j.task] + j.updated[j.task] }

func (j *journal) TaskFinished(_ context.Context, o cleanup.Outcome) error {
	j.states[j.task], j.problems[j.task], j.retained[j.task] = o.State, o.Problem, o.Retained
	j.details[j.task] = message.Join(o.Details)
	if o.Preview != nil {
		j.previews[j.task], j.planned[j.task] = o.Preview.Tables, *o.Preview
	}
	return nil
}

func (j *journal) said(parts ...string) bool {
	return slices.ContainsFunc(j.logs, func(line string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
	})
}

// log returns what the log says about a task.
func (j *journal) log(task string) string { return strings.Join(j.taskLogs[task], "; ") }

func heldTable(name string) []rules.HeldTable {
	return []rules.HeldTable{{Schema: "public", Name: name}}
}

func newJournal(db *pgtest.DB) *journal {
	return &journal{
		db:       db,
		states:   map[string]cleanup.State{},
		problems: map[string]string{},
		deleted:  map[string]int64{},
		rows:     map[string]int64{},
		updated:  map[string]int64{},
		cascaded: map[string]int64{},
		dropped:  map[string]int64{},
		removed:  map[string]int64{},
		retained: map[string]purge.Retained{},
		details:  map[string]string{},
		previews: map[string][]cleanup.PreviewTable{},
		planned:  map[string]cleanup.SavedTask{},
		expected: map[string]int64{},
		emptied:  map[string][]string{},
		taskLogs: map[string][]string{},
	}
}

func (j *journal) checkState(t *testing.T, task string, want cleanup.State) {
	t.Helper()
	if got := j.states[task]; got != want {
		t.Errorf("task %s is %q, want %q; its problem is %q", task, got, want, j.problems[task])
	}
}

func (j *journal) checkProblem(t *testing.T, task, want string) {
	t.Helper()
	if got := j.problems[task]; !strings.Contains(got, want) {
		t.Errorf("the problem of task %s is %q, want %q in it", task, got, want)
	}
}

func (j *journal) checkDeleted(t *testing.T, task string, want int64) {
	t.Helper()
	if got := j.deleted[task]; got != want {
		t.Errorf("task %s deleted %d rows and relations, want %d", task, got, want)
	}
}

func (j *journal) checkUpdated(t *testing.T, task string, want int64) {
	t.Helper()
	if got := j.updated[task]; got != want {
		t.Errorf("task %s updated %d rows, want %d", task, got, want)
	}
}

func (j *journal) checkRetained(t *testing.T, task string, want purge.Retained) {
	t.Helper()
	if got := j.retained[task]; got != want {
		t.Errorf("task %s retained %+v, want %+v", task, got, want)
	}
}

func (j *journal) checkLog(t *testing.T, parts ...string) {
	t.Helper()
	if !j.said(parts...) {
		t.Errorf("no log line contains %q; the log is %q", parts, j.logs)
	}
}

func (j *journal) checkNoLog(t *testing.T, parts ...string) {
	t.Helper()
	if j.said(parts...) {
		t.Errorf("a log line contains %q; the log is %q", parts, j.logs)
	}
}

func checkRows(t *testing.T, db *pgtest.DB, query string, want ...string) {
	t.Helper()
	if got := db.Strings(query); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q from %s", got, want, query)
	}
}

func checkCount(t *testing.T, db *pgtest.DB, want int64, query string, args ...any) {
	t.Helper()
	if got := db.Int(query, args...); got != want {
		t.Errorf("got %d, want %d from %s", got, want, query)
	}
}

func checkRecordedRemotes(t *testing.T, db *pgtest.DB, want ...string) {
	t.Helper()
	if got := recordedRemotes(db); !slices.Equal(got, want) {
		t.Errorf("the recorded remote deliveries are %q, want %q", got, want)
	}
}

func checkError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Error("there is no error")
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %q, want %q in it", err, part)
		}
	}
}

func do(ctx context.Context, c cleanup.Config, j *journal) error {
	if c.DryRun {
		return cleanup.DryRun(ctx, c, j)
	}
	return cleanup.Execute(ctx, c, j)
}

// run executes the named tasks, or all tasks if none is named.
func run(t *testing.T, db *pgtest.DB, change func(*cleanup.Config), names ...string) (*journal, error) {
	t.Helper()
	j := newJournal(db)
	return j, runWith(t, j, change, names...)
}

func runWith(t testing.TB, j *journal, change func(*cleanup.Config), names ...string) error {
	t.Helper()
	db := j.db
	c := cleanup.Config{
		Pool:     db.Pool,
		Now:      now,
		Pipeline: tasks.Pipeline,
		Settings: purge.Settings{LockTimeout: lockTimeout},
	}
	for _, task := range tasks.Pipeline {
		if len(names) == 0 || slices.Contains(names, task.Name) {
			c.Todo = append(c.Todo, task)
		}
	}
	if change != nil {
		change(&c)
	}
	return do(t.Context(), c, j)
}

func mustRun(t *testing.T, db *pgtest.DB, change func(*cleanup.Config), names ...string) *journal {
	t.Helper()
	j, err := run(t, db, change, names...)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// lockTimeout is the lock timeout of runs in tests. Most locks that they wait for are not released.
const lockTimeout = 400 * time.Millisecond

func dry(c *cleanup.Config) { c.DryRun = true }

// impatient is for runs that meet a lock that is not released.
func impatient(c *cleanup.Config) { c.Settings.LockTimeout = 50 * time.Millisecond }

func since(t *testing.T, db *pgtest.DB, version int64) {
	t.Helper()
	if db.Int("SELECT current_setting('server_version_num')::int / 10000") < version {
		t.Skipf("PostgreSQL %d or later is needed: make versions", version)
	}
}
