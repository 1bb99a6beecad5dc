package userdata_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/userdata"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// forms is a Forms database of a test, and its document storage.
type forms struct {
	*userdata.Database
	t      testing.TB
	db     *pgtest.DB
	data   *formsdb.Data
	folder string
	config userdata.Config
}

// newForms makes a database with a number of process instances.
func newForms(t testing.TB, seed uint64, instances int, inFiles bool) *forms {
	t.Helper()
	f := &forms{t: t, db: pgtest.Empty(t), data: formsdb.Generate(rand.New(rand.NewPCG(seed, 0)), instances, inFiles)}
	if inFiles {
		f.folder = t.TempDir()
	}
	f.db.Do(formsdb.Schema)
	conn, err := f.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := f.data.Load(t.Context(), conn.Conn(), f.folder); err != nil {
		t.Fatal(err)
	}
	if err := userdata.Migrate(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	f.config = userdata.Config{Pool: f.db.Pool, Folder: f.folder, InDatabase: !inFiles}
	f.Database = userdata.New(f.config)
	return f
}

// work carries out erasures until the function that it returns is called, or the test ends.
func (f *forms) work() (stop func()) { return f.workAnd(slog.New(slog.DiscardHandler)) }

// workAnd is work with a log.
func (f *forms) workAnd(log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.Work(ctx, log) })
	stop = func() { cancel(); wg.Wait() }
	f.t.Cleanup(stop)
	return stop
}

// erase erases, and returns the events and the receipt.
func (f *forms) erase(r userdata.Request) ([]userdata.Event, *userdata.Receipt) {
	f.t.Helper()
	id, err := f.Start(f.t.Context(), r)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.watch(id)
}

func (f *forms) watch(id string) (events []userdata.Event, receipt *userdata.Receipt) {
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

// preview is the receipt of a dry run.
func (f *forms) preview(r userdata.Request) (receipt *userdata.Receipt) {
	f.t.Helper()
	if err := f.Preview(f.t.Context(), r, func(e userdata.Event) error {
		receipt = e.Receipt
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return receipt
}

// find finds.
func (f *forms) find(q userdata.Query) *userdata.Found {
	f.t.Helper()
	found, err := f.Find(f.t.Context(), q)
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

// files are the paths in the folder.
func (f *forms) files() (names []string) {
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
