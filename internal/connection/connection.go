// Package connection has connections to PostgreSQL begin with settings. They are set once connected: poolers such as
// PgBouncer refuse all but a few of those that a client asks for when it connects.
package connection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Settings are applied after those that the connection began with so far.
func Set(config *pgx.ConnConfig, settings map[string]string) {
	var calls []string
	var values [][]byte
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		values = append(values, []byte(name), []byte(settings[name]))
		calls = append(calls, fmt.Sprintf("set_config($%d, $%d, false)", len(values)-1, len(values)))
	}
	afterConnect(config, func(ctx context.Context, conn *pgconn.PgConn) error {
		return conn.ExecParams(ctx, "SELECT "+strings.Join(calls, ", "), values, nil, nil, nil).Read().Err
	})
}

// next has to end within the timeout for connecting: a pooler may have no connection to the server for this one.
func afterConnect(config *pgx.ConnConfig, next pgconn.AfterConnectFunc) {
	before, timeout := config.AfterConnect, config.ConnectTimeout
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return next(ctx, conn)
	}
}

// Settings that a URL gives are set once connected. Settings in options remain in the first message.
func Defer(config *pgx.ConnConfig) {
	settings := maps.Clone(config.RuntimeParams)
	delete(settings, "options")
	maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool { return name != "options" })
	if len(settings) > 0 {
		Set(config, settings)
	}
}

// Reset sets everything back to what the connection began with.
func Reset(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "RESET ALL"); err != nil {
		return err
	}
	if begin := conn.Config().AfterConnect; begin != nil {
		return begin(ctx, conn.PgConn())
	}
	return nil
}
