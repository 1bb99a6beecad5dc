package tasks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
)

var injections = flag.Int(
	"injections",
	suite.Size(suite.Faults, 3, 24),
	"how many statements of a run TestInjectedErrors has fail, evenly spread; 0: each",
)

// transientErrors are the SQLSTATEs of errors after which a retry can succeed.
var transientErrors = []string{
	pgerrcode.DeadlockDetected,
	pgerrcode.LockNotAvailable,
	pgerrcode.SerializationFailure,
	pgerrcode.QueryCanceled,
	pgerrcode.TooManyConnections,
	pgerrcode.OutOfMemory,
}

// injector forwards connections to a server, counts the executed statements, and makes one of them fail.
type injector struct {
	net.Listener
	network, server string

	mu       sync.Mutex
	executed int
	at       int // the number of the failing statement, 0 if none fails
	state    string
}

// newInjector returns an injector in front of a database's server, and a pool that connects through it.
func newInjector(t *testing.T, db *pgtest.DB, at int, state string) (*injector, *pgxpool.Pool) {
	t.Helper()
	db.Do(
		`CREATE SCHEMA injected; CREATE FUNCTION injected.raise(state text) RETURNS void
			LANGUAGE plpgsql AS 'BEGIN RAISE ''injected'' USING ERRCODE = state; END'`,
	)
	config, err := pgxpool.ParseConfig(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	network, server := pgconn.NetworkAddress(config.ConnConfig.Host, config.ConnConfig.Port)
	i := &injector{Listener: listener, network: network, server: server, at: at, state: state}
	config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.TLSConfig = "127.0.0.1", uint16(
		listener.Addr().(*net.TCPAddr).Port,
	), nil
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	go i.serve()
	return i, pool
}

func (i *injector) serve() {
	for {
		client, err := i.Accept()
		if err != nil {
			return
		}
		go i.forward(client)
	}
}

// forward forwards a connection, or a request to cancel a statement of another one.
func (i *injector) forward(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial(i.network, i.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	backend, frontend := pgproto3.NewBackend(client, client), pgproto3.NewFrontend(server, server)
	start, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	frontend.Send(start)
	if frontend.Flush() != nil {
		return
	}
	go func() {
		defer func() { _ = client.Close() }()
		for {
			message, err := frontend.Receive()
			if err != nil {
				return
			}
			if e, ok := message.(*pgproto3.ErrorResponse); ok && e.Message == "injected" {
				e.Where = "" // as if it were the statement's own error
			}
			backend.Send(message)
			if backend.Flush() != nil {
				return
			}
		}
	}()
	for {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		for _, m := range i.inject(message) {
			frontend.Send(m)
		}
		if frontend.Flush() != nil {
			return
		}
	}
}

// inject returns the messages to send for a message.
func (i *injector) inject(message pgproto3.FrontendMessage) []pgproto3.FrontendMessage {
	raise := fmt.Sprintf("SELECT injected.raise('%s')", i.state)
	switch message.(type) {
	case *pgproto3.Query:
		if i.fails() {
			return []pgproto3.FrontendMessage{&pgproto3.Query{String: raise}}
		}
	case *pgproto3.Execute:
		if i.fails() {
			return []pgproto3.FrontendMessage{&pgproto3.Parse{Query: raise}, &pgproto3.Bind{}, &pgproto3.Execute{}}
		}
	}
	return []pgproto3.FrontendMessage{message}
}

// fails counts a statement, and reports whether it must fail.
func (i *injector) fails() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.executed++
	return i.executed == i.at
}

// A run survives a transient error of any statement, or fails a task with this error. The next run deletes the
// remaining rows. Each row is counted exactly once.
func TestInjectedErrors(t *testing.T) {
	t.Parallel()
	injectedRun := func(t *testing.T, at int, state string) (db *pgtest.DB, m *model, executed int, rows int64) {
		t.Helper()
		db = pgtest.Campaign(t)
		m = randomDatabase(t, db, *firstSeed, now)
		i, pool := newInjector(t, db, at, state)
		j := newJournal(db)
		err := runWith(t, j, func(c *pipeline.Config) { c.Pool, c.ContinueOnError = pool, true })
		if err != nil && (at == 0 || errors.Is(err, context.Canceled)) {
			t.Fatal(err)
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		again := newJournal(db)
		if err := runWith(t, again, nil); err != nil {
			t.Fatalf("the run after a failed one ended with %v", err)
		}
		var left int64
		for _, l := range j.retained {
			left += l.Rows() + l.Tables
		}
		if rest := total(again); rest > 0 && err == nil && left == 0 {
			t.Errorf("a run without an error that retained nothing left %d rows: %q", rest, j.logs)
		}
		return db, m, i.executed, total(j) + total(again)
	}
	_, _, statements, rows := injectedRun(t, 0, "")
	step := max(1, statements/max(1, *injections))
	if *injections == 0 {
		step = 1
	}
	offset := int(*firstSeed) % step
	for at := 1 + offset; at <= statements; at += step {
		state := transientErrors[at%len(transientErrors)]
		t.Run(fmt.Sprintf("statement %d %s", at, state), func(t *testing.T) {
			t.Parallel()
			db, m, executed, got := injectedRun(t, at, state)
			if executed < at { // this run executed fewer statements
				if db, m, executed, got = injectedRun(t, executed/2, state); executed < at/4 {
					t.Fatalf("%d statements were executed, want at least %d", executed, at/4)
				}
			}
			original := m.keys()
			m.run()
			compare(t, "after an injected error", contents(t, db, m, original), m.contents(original))
			if got != rows {
				t.Errorf("%d rows were counted, want %d", got, rows)
			}
		})
	}
}

// total returns how many rows a run deleted.
func total(j *journal) (rows int64) {
	for _, n := range j.rows {
		rows += n
	}
	return rows
}
