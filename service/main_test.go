package service_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/userdata"
)

func TestMain(m *testing.M) {
	if given := os.Getenv("WATCH"); given != "" { // the process of TestWatchers
		if err := watch(given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}

type server struct {
	cleanupd.Client
	conn *grpc.ClientConn
	url  string // of REST
	db   *pgtest.DB

	manager *runs.Manager
	tables  *capacity.Lister
}

// serve migrates the database, and serves it. An idle replica claims no runs.
func serve(t testing.TB, db *pgtest.DB, idle bool) *server { return serveForms(t, db, idle, nil) }

func serveForms(t testing.TB, db *pgtest.DB, idle bool, forms *userdata.Manager) *server {
	return serveAs(t, db, idle, forms, transport.Config{Authenticator: &access.Authenticator{}})
}

// The client of the test has no CA and no credentials.
func serveAs(t testing.TB, db *pgtest.DB, idle bool, forms *userdata.Manager, config transport.Config) *server {
	t.Helper()
	migrate(t, db)
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	config.HTTPLoopback, config.Log = true, cmp.Or(config.Log, log)
	own := runs.Config{Pool: db.Pool, Lease: 2 * time.Second, Replica: "test", Log: log}
	if forms != nil && forms.Forms != nil {
		forms.Record, own.Tasks.External = db.Pool, forms.Tasks
		forms.Held = func(ctx context.Context) error { return runs.CheckErasable(ctx, db.Pool) }
	}
	manager := runs.New(own)
	calls := service.New(ctx, db.Pool, manager)
	served, err := service.NewServer(calls, service.NewUserData(ctx, forms), config)
	grpcListener, refused := net.Listen("tcp", "127.0.0.1:0")
	httpListener, alsoRefused := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err, refused, alsoRefused); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = served.Serve(ctx, grpcListener, httpListener) })
	wg.Go(func() { manager.Listen(ctx) })
	if forms != nil {
		wg.Go(func() { forms.Work(ctx, log) })
	}
	if !idle {
		wg.Go(func() { manager.Work(ctx) })
	}
	conn, err := grpc.NewClient(grpcListener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		wg.Wait()
	})
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
	}
	url := scheme + httpListener.Addr().String()
	return &server{cleanupd.NewClient(conn), conn, url, db, manager, calls.Tables}
}

func migrate(t testing.TB, db *pgtest.DB) {
	t.Helper()
	if db.Int("SELECT (to_regclass('cleanupd.erasure') IS NOT NULL)::int") == 1 {
		return
	}
	admin, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		store.Migrate(t.Context(), admin), userdata.Migrate(t.Context(), admin), admin.Close(t.Context()),
	); err != nil {
		t.Fatal(err)
	}
}

func campaign(t *testing.T) *server { return serve(t, database(t), false) }

func database(t testing.TB) *pgtest.DB { return prepared(t, "cleanupd", campaigndb.Schema) }

// prepared returns a database with the tables of schema, and with the service's own.
func prepared(t testing.TB, name, schema string) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, name, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, schema)
		return errors.Join(err, store.Migrate(ctx, conn), userdata.Migrate(ctx, conn))
	})
}

// bare returns a database without tables of an application.
func bare(t testing.TB) *pgtest.DB {
	t.Helper()
	return prepared(t, "bare", "")
}

type stream[M any] interface{ Recv() (M, error) }

// The sequences must have no gap. The error is how the stream ended.
func drain[M interface{ GetEvent() *cleanupv1.RunEvent }](
	t *testing.T, s stream[M], err error,
) ([]*cleanupv1.RunEvent, error) {
	t.Helper()
	var events []*cleanupv1.RunEvent
	for err == nil {
		var m M
		if m, err = s.Recv(); err == nil {
			events = append(events, m.GetEvent())
		}
	}
	for i := 1; i < len(events); i++ {
		if events[i].GetSequence() != events[i-1].GetSequence()+1 {
			t.Errorf("sequence %d follows %d", events[i].GetSequence(), events[i-1].GetSequence())
		}
	}
	if errors.Is(err, io.EOF) {
		return events, nil
	}
	return events, err
}

func (s *server) run(t *testing.T, req *cleanupv1.RunCleanupRequest) ([]*cleanupv1.RunEvent, *cleanupv1.Run, error) {
	t.Helper()
	stream, err := s.RunCleanup(t.Context(), req)
	events, err := drain(t, stream, err)
	if len(events) == 0 {
		return nil, nil, err
	}
	return events, events[len(events)-1].GetRunFinished().GetRun(), err
}

// ErrorInfo and BadRequest may be nil.
func wantCode(t *testing.T, err error, want codes.Code) (info *errdetails.ErrorInfo, bad *errdetails.BadRequest) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != want {
		t.Errorf("got %v, want %v", err, want)
	}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.BadRequest:
			bad = d
		}
	}
	return info, bad
}

// A row of XtkReject remains locked, so that the task import-rejects takes a while, until release is called.
func hold(t *testing.T, db *pgtest.DB) (release func()) {
	t.Helper()
	db.Do("INSERT INTO XtkReject (iRejectId, tsLog) VALUES (1, '2000-01-01')")
	tx := db.Hold("SELECT FROM XtkReject FOR UPDATE")
	return func() { _ = tx.Rollback(context.Background()) }
}

// There are rows on both sides of every rule.
func filled(t *testing.T) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, "filled", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, campaigndb.Schema)
		return errors.Join(err, store.Migrate(ctx, conn), userdata.Migrate(ctx, conn),
			campaigndb.Fill(ctx, conn, 5_000, 1, time.Now()))
	})
}
