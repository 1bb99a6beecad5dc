package runs

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/rescue"
)

// Listen receives the replicas' notifications until the context ends. While it is disconnected, polling replaces them.
func (m *Manager) Listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := rescue.Call(func() error { return m.listen(ctx) })
		rescue.Log(m.log, "listen for notifications", err)
		if ctx.Err() != nil {
			return
		}
		m.log.Warn("not listening for notifications; polling meanwhile", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (m *Manager) listen(ctx context.Context) error {
	conn, err := connection.Connect(ctx, m.pool.Config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		n, err := notification(ctx, conn)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		runID, sequence, _ := strings.Cut(n.Payload, " ")
		if sequence == "0" {
			poke(m.wake)
			continue
		}
		m.mu.Lock()
		if t := m.tails[runID]; t != nil {
			poke(t.wake)
		}
		m.mu.Unlock()
	}
}

// quietFor is how long there may be no notification before the connection is checked with a ping.
const quietFor = 30 * time.Second

// notification is the next one; nil if there was none for a while and the connection is alive.
func notification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waiting, stop := context.WithTimeout(ctx, quietFor)
	defer stop()
	n, err := conn.WaitForNotification(waiting)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return n, err
	}
	asking, stop := context.WithTimeout(ctx, shortTimeout)
	defer stop()
	return nil, conn.Ping(asking)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
