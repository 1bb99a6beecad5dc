package userdata_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

func TestMain(m *testing.M) { pgtest.Main(m, mysqltest.Stop) }

// A database product.
type engine string

const (
	onPostgres engine = "PostgreSQL"
	onMySQL    engine = "MySQL"
)

// onBoth is for what the statements, the locks or the catalog of a database product decide.
func onBoth(t *testing.T, test func(t *testing.T, on engine)) {
	t.Helper()
	onEach(t, test, onPostgres, onMySQL)
}

// mostlyOnPostgres is for what this package decides: the long suite asks it on MySQL as well.
func mostlyOnPostgres(t *testing.T, test func(t *testing.T, on engine)) {
	t.Helper()
	onEach(t, test, suite.Size(suite.Long, []engine{onPostgres}, []engine{onPostgres, onMySQL})...)
}

func onEach(t *testing.T, test func(t *testing.T, on engine), engines ...engine) {
	t.Helper()
	t.Parallel()
	for _, on := range engines {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			test(t, on)
		})
	}
}

type database interface {
	Do(statement string, args ...any)
	Int(query string, args ...any) int64
	Strings(query string, args ...any) []string
}

// A Forms database, with its document storage and the record of its erasures.
type fixture struct {
	*userdata.Manager
	t      testing.TB
	on     engine
	db     database
	record *pgtest.DB // on PostgreSQL, the same database
	data   *formsdb.Data
	folder string
	config userdata.Config
}

func newForms(t testing.TB, seed uint64, instances int, inFiles bool) *fixture {
	t.Helper()
	return newFormsOn(t, onPostgres, seed, instances, inFiles)
}

func newFormsOn(t testing.TB, on engine, seed uint64, instances int, inFiles bool) *fixture {
	t.Helper()
	f := &fixture{
		t:      t,
		on:     on,
		record: newRecord(t, on),
		data:   formsdb.Generate(rand.New(rand.NewPCG(seed, 0)), instances, inFiles),
	}
	if inFiles {
		f.folder = t.TempDir()
	}
	f.config = userdata.Config{Record: f.record.Pool, Folder: f.folder, InDatabase: !inFiles}
	conn, err := f.record.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	switch on {
	case onPostgres:
		f.db = f.record
		err = f.data.Load(t.Context(), conn.Conn(), f.folder)
		f.config.Forms = openPostgres(t, f.record.For(campaigndb.Role).Pool)
	case onMySQL:
		db := mysqltest.Empty(t, []string{"utf8mb4", "latin1"}[seed/2%2])
		f.db = db
		f.db.Do(formsdb.MySQLSchema)
		err = f.data.LoadMySQL(t.Context(), db.DB, f.folder)
		f.config.Forms = openMySQL(t, db.Config("root"))
	}
	if err != nil {
		t.Fatal(err)
	}
	f.open()
	return f
}

// For the record of erasures: on PostgreSQL it is also the Forms database.
func newRecord(t testing.TB, on engine) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, strings.ToLower(string(on)), func(ctx context.Context, conn *pgx.Conn) (err error) {
		if on == onPostgres {
			_, err = conn.Exec(ctx, formsdb.Schema)
		}
		return errors.Join(err, userdata.Migrate(ctx, conn))
	})
}

// Also creates the service's own tables in both databases.
func (f *fixture) open() {
	f.t.Helper()
	conn, err := f.record.Acquire(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Release()
	if err := errors.Join(
		userdata.Migrate(f.t.Context(), conn.Conn()), f.config.Forms.Migrate(f.t.Context()),
	); err != nil {
		f.t.Fatal(err)
	}
	f.Manager = userdata.New(f.config)
}

func openPostgres(t testing.TB, pool *pgxpool.Pool) *forms.Database {
	db := forms.PostgreSQL(pool)
	t.Cleanup(db.Close)
	return db
}

func openMySQL(t testing.TB, config *mysql.Config) *forms.Database {
	t.Helper()
	db, err := forms.MySQL(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func onPools(t testing.TB, c userdata.Config, recordPool, pool *pgxpool.Pool) *userdata.Manager {
	t.Helper()
	c.Record, c.Forms = recordPool, openPostgres(t, pool)
	if err := c.Forms.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return userdata.New(c)
}

// In PostgreSQL, without rows. With files, it has a folder with these files.
func bareForms(t *testing.T, files ...string) *fixture {
	t.Helper()
	return bareFormsOn(t, onPostgres, files...)
}

func bareFormsOn(t *testing.T, on engine, files ...string) *fixture {
	t.Helper()
	f := newFormsOn(t, on, 0, 0, true)
	f.clear("tb_task", "tb_assignment", "tb_form_data", "tb_process_instance", "tb_task_acl", "tb_task_attachment")
	for _, name := range f.files() {
		if err := os.Remove(filepath.Join(f.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		if err := os.MkdirAll(filepath.Join(f.folder, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(f.folder, name)
		if err := errors.Join(
			os.WriteFile(path, nil, 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-48*time.Hour)),
		); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *fixture) clear(tables ...string) {
	f.t.Helper()
	for _, table := range tables {
		f.db.Do("DELETE FROM " + table)
	}
}

// A relation of the numbers from 1, in its column i.
func (f *fixture) numbers(most int) string {
	if f.on == onMySQL {
		return fmt.Sprintf("(SELECT seq AS i FROM seq_1_to_%d) AS s", most)
	}
	return fmt.Sprintf("generate_series(1, %d) AS s (i)", most)
}

// The statement's transaction keeps its locks until release is called.
func (f *fixture) hold(statement string) (release func()) {
	f.t.Helper()
	if f.on == onPostgres {
		tx := f.record.Hold(statement)
		return func() { _ = tx.Rollback(context.Background()) }
	}
	tx, err := f.db.(*mysqltest.DB).Begin()
	if err != nil {
		f.t.Fatal(err)
	}
	release = func() { _ = tx.Rollback() }
	f.t.Cleanup(release)
	if _, err := tx.Exec(statement); err != nil {
		f.t.Fatal(err)
	}
	return release
}

// work runs until stop is called, or the test ends.
func (f *fixture) work() (stop func()) { return f.workAnd(slog.New(slog.DiscardHandler)) }

func (f *fixture) workAnd(log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.Work(ctx, log) })
	stop = func() { cancel(); wg.Wait() }
	f.t.Cleanup(stop)
	return stop
}

func (f *fixture) erase(r userdata.Request) ([]userdata.Event, *userdata.Receipt) {
	f.t.Helper()
	id, err := f.Start(f.t.Context(), r)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.watch(id)
}

func (f *fixture) watch(id string) (events []userdata.Event, receipt *userdata.Receipt) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	receipt, err := f.Watch(ctx, id, func(e userdata.Event) error {
		events = append(events, e)
		if e.Sequence != int64(len(events)) {
			f.t.Errorf("sequence %d is the %dth", e.Sequence, len(events))
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return events, receipt
}

func (f *fixture) preview(r userdata.Request) (receipt *userdata.Receipt) {
	f.t.Helper()
	if err := f.Preview(f.t.Context(), r, func(e userdata.Event) error {
		receipt = e.Receipt
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return receipt
}

func (f *fixture) find(q userdata.Query) *userdata.Found {
	f.t.Helper()
	found, err := f.Find(f.t.Context(), q)
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

func (f *fixture) files() (names []string) {
	f.t.Helper()
	if f.folder == "" {
		return nil
	}
	if err := filepath.WalkDir(f.folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(f.folder, path)
			names = append(names, name)
		}
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// One warning or error of the erasure has all parts.
func (f *fixture) logged(events []userdata.Event, parts ...string) bool {
	return slices.ContainsFunc(events, func(e userdata.Event) bool {
		return e.Log != nil &&
			!slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(e.Log.Message, p) })
	})
}

func firstWarning(to chan<- string) *slog.Logger {
	return slog.New(slog.NewTextHandler(warnings(to), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type warnings chan<- string

func (w warnings) Write(p []byte) (int, error) {
	select {
	case w <- string(p):
	default:
	}
	return len(p), nil
}

// Each value may take a minute.
func receive[T any](t testing.TB, from <-chan T, count int) {
	t.Helper()
	for i := range count {
		select {
		case <-from:
		case <-time.After(time.Minute):
			t.Fatalf("%d values of %d came", i, count)
		}
	}
}
