package pgtest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// These are ways to fail besides SQLSTATEs.
const (
	CutBefore  = "connection cut before the statement"
	CutAfter   = "connection cut before the answer"
	Terminated = "backend terminated"
)

// Injector forwards connections to a server, and makes statements fail.
type Injector struct {
	net.Listener
	network, server string

	mu    sync.Mutex
	fails func(sql string) (how string)
}

// Inject returns a pool that connects through an injector. fails is called for each executed statement, one at a
// time. It returns how the statement fails: an SQLSTATE or one of the constants; "" if it does not fail.
func (db *DB) Inject(fails func(sql string) (how string)) (*Injector, *pgxpool.Pool) {
	db.t.Helper()
	db.Do(
		`CREATE SCHEMA injected; CREATE FUNCTION injected.raise(state text) RETURNS void
			LANGUAGE plpgsql AS 'BEGIN RAISE ''injected'' USING ERRCODE = state; END';
		CREATE FUNCTION injected.terminate() RETURNS void LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); END'`,
	)
	config, err := pgxpool.ParseConfig(db.URL())
	if err != nil {
		db.t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(db.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		db.t.Fatal(err)
	}
	db.t.Cleanup(func() { _ = listener.Close() })
	network, server := pgconn.NetworkAddress(config.ConnConfig.Host, config.ConnConfig.Port)
	i := &Injector{Listener: listener, network: network, server: server, fails: fails}
	config.ConnConfig.Host, config.ConnConfig.TLSConfig = "127.0.0.1", nil
	config.ConnConfig.Port = uint16(listener.Addr().(*net.TCPAddr).Port)
	config.ConnConfig.Fallbacks = nil
	withoutJIT(config)
	pool, err := pgxpool.NewWithConfig(db.t.Context(), config)
	if err != nil {
		db.t.Fatal(err)
	}
	db.t.Cleanup(pool.Close)
	go i.serve()
	return i, pool
}

// Locked calls do while no statement is examined.
func (i *Injector) Locked(do func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	do()
}

func (i *Injector) serve() {
	for {
		client, err := i.Accept()
		if err != nil {
			return
		}
		go i.forward(client)
	}
}

// The connection may also be a request to cancel a statement of another one.
func (i *Injector) forward(client net.Conn) {
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
	answered, cut := context.WithCancel(context.Background())
	defer cut()
	var steps steps
	go func() {
		defer func() { _ = client.Close() }()
		for {
			message, err := frontend.Receive()
			if err != nil || answered.Err() != nil {
				if _, ready := message.(*pgproto3.ReadyForQuery); ready || err != nil {
					return
				}
				continue
			}
			if e, ok := message.(*pgproto3.ErrorResponse); ok && e.Message == "injected" {
				e.Where = "" // as if it were the statement's own error
			}
			if steps.hides(message) {
				continue
			}
			backend.Send(message)
			if backend.Flush() != nil {
				return
			}
		}
	}()
	executed := statements{named: map[string]string{}, bound: map[string]string{}}
	for {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		how := ""
		if sql, is := executed.by(message); is {
			i.Locked(func() { how = i.fails(sql) })
		}
		switch how {
		case CutBefore:
			return
		case CutAfter:
			cut()
		}
		sent := replace(message, how)
		for _, m := range sent {
			steps.sent(m, len(sent) > 1)
			frontend.Send(m)
		}
		if frontend.Flush() != nil {
			return
		}
	}
}

// statements are those of a connection, by the names of prepared statements and of portals.
type statements struct{ named, bound map[string]string }

func (s statements) by(message pgproto3.FrontendMessage) (sql string, executed bool) {
	switch m := message.(type) {
	case *pgproto3.Query:
		return m.String, true
	case *pgproto3.Parse:
		s.named[m.Name] = m.Query
	case *pgproto3.Bind:
		s.bound[m.DestinationPortal] = s.named[m.PreparedStatement]
	case *pgproto3.Execute:
		return s.bound[m.Portal], true
	}
	return "", false
}

// replace returns the messages to send instead of a message that executes a statement.
func replace(message pgproto3.FrontendMessage, how string) []pgproto3.FrontendMessage {
	sql := fmt.Sprintf("SELECT injected.raise('%s')", how)
	switch how {
	case "", CutAfter:
		return []pgproto3.FrontendMessage{message}
	case Terminated:
		sql = "SELECT injected.terminate()"
	}
	if _, simple := message.(*pgproto3.Query); simple {
		return []pgproto3.FrontendMessage{&pgproto3.Query{String: sql}}
	}
	return []pgproto3.FrontendMessage{&pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Execute{}}
}

// steps marks answers to messages that were injected into a pipeline. The client does not expect those answers.
type steps struct {
	mu            sync.Mutex
	parsed, bound []bool // whether the unanswered messages of a kind were injected
}

func (s *steps) sent(message pgproto3.FrontendMessage, injected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch message.(type) {
	case *pgproto3.Parse:
		s.parsed = append(s.parsed, injected)
	case *pgproto3.Bind:
		s.bound = append(s.bound, injected)
	}
}

// hides reports whether the message answers an injected one.
func (s *steps) hides(message pgproto3.BackendMessage) (hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := func(sent *[]bool) {
		if len(*sent) > 0 {
			hidden, *sent = (*sent)[0], (*sent)[1:]
		}
	}
	switch message.(type) {
	case *pgproto3.ParseComplete:
		next(&s.parsed)
	case *pgproto3.BindComplete:
		next(&s.bound)
	case *pgproto3.ErrorResponse: // the server does not answer the rest, up to Sync
		s.parsed, s.bound = nil, nil
	}
	return hidden
}
