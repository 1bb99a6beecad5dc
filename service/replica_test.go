package service_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/userdata"
)

// In this process or in another one.
type replica struct {
	server     *transport.Server
	manager    *runs.Manager
	forms      *userdata.Manager // nil: none
	grpc, http net.Listener
	tables     *capacity.Lister
}

func newReplica(
	ctx context.Context, name string, pool *pgxpool.Pool, forms *userdata.Manager, config transport.Config,
) (r *replica, err error) {
	log := slog.New(slog.DiscardHandler)
	config.HTTPLoopback, config.Log = true, cmp.Or(config.Log, log)
	own := runs.Config{Pool: pool, Lease: 2 * time.Second, Replica: name, Log: log}
	if forms != nil && forms.Forms != nil {
		forms.Record, own.Tasks.External = pool, forms.Tasks
		forms.Held = func(ctx context.Context) error { return runs.CheckErasable(ctx, pool) }
	}
	r = &replica{manager: runs.New(own), forms: forms}
	s := service.New(ctx, pool, r.manager)
	r.tables = s.Tables
	if r.server, err = service.NewServer(s, service.NewUserData(ctx, forms), config); err != nil {
		return nil, err
	}
	var refused [2]error
	r.grpc, refused[0] = net.Listen("tcp", "127.0.0.1:0")
	r.http, refused[1] = net.Listen("tcp", "127.0.0.1:0")
	return r, errors.Join(refused[:]...)
}

// An idle replica claims no runs.
func (r *replica) serve(ctx context.Context, idle bool) {
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.server.Serve(ctx, r.grpc, r.http) })
	wg.Go(func() { r.manager.Listen(ctx) })
	if r.forms != nil {
		wg.Go(func() { r.forms.Work(ctx, slog.New(slog.DiscardHandler)) })
	}
	if !idle {
		wg.Go(func() { r.manager.Work(ctx) })
	}
	wg.Wait()
}

// With this variable a process of the tests becomes a replica; it is the URL of the database.
const replicaOf = "REPLICA_OF"

// replicaProcess prints the addresses of its REST API and console, and serves until its input ends, as it does with the
// test.
func replicaProcess(database string) error {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := newReplica(ctx, fmt.Sprint(os.Getpid()), pool, nil,
		transport.Config{Authenticator: &access.Authenticator{}, Console: true})
	if err != nil {
		return err
	}
	fmt.Println(r.http.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	r.serve(ctx, false)
	return nil
}

func startReplica(t *testing.T, db *pgtest.DB) (process *exec.Cmd, address string) {
	t.Helper()
	process = exec.Command(os.Args[0])
	process.Env = append(os.Environ(), replicaOf+"="+db.URL())
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = process.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the replica does not say where it is")
	}
	return process, lines.Text()
}
