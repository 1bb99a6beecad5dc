package eventlog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// Listen receives the notifications of all replicas until the context ends. While it is disconnected, tails still
// poll.
func (l *Log) Listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := rescue.Call(func() error { return l.listen(ctx) })
		rescue.Log(l.log, "listen for notifications", err)
		if ctx.Err() != nil {
			return
		}
		l.log.Warn("not listening for notifications; polling meanwhile", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (l *Log) listen(ctx context.Context) error {
	conn, err := connection.Connect(ctx, l.listener.Config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+store.Channel); err != nil {
		return err
	}
	for {
		n, err := waitForNotification(ctx, conn)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		id, waiting := store.ParseNotification(n.Payload)
		if waiting {
			l.waiting()
			continue
		}
		l.mu.Lock()
		if t := l.tails[id]; t != nil {
			select {
			case t.wake <- struct{}{}:
			default: // a wake-up is already pending
			}
		}
		l.mu.Unlock()
	}
}

// pingAfter is how long no notification may arrive before the connection is checked.
const pingAfter = 30 * time.Second

// waitForNotification returns nil if no notification arrived for a while and the connection is alive.
func waitForNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waiting, stop := context.WithTimeout(ctx, pingAfter)
	defer stop()
	n, err := conn.WaitForNotification(waiting)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return n, err
	}
	pinging, stop := context.WithTimeout(ctx, store.Timeout)
	defer stop()
	return nil, conn.Ping(pinging)
}
