// Package connection prepares connections to PostgreSQL, for example with settings. It sends settings after
// connecting, since poolers such as PgBouncer refuse most settings in the first message.
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

// Set makes connections apply these settings, after those that were set before.
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

// afterConnect also limits next by the timeout for connecting, since a pooler may have no free connection to the
// server.
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

// Defer makes connections apply the settings that a URL gives after connecting. Settings in options remain in the
// first message.
func Defer(config *pgx.ConnConfig) {
	settings := maps.Clone(config.RuntimeParams)
	delete(settings, "options")
	maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool { return name != "options" })
	if len(settings) > 0 {
		Set(config, settings)
	}
}

// selectPath is the search path without the service's schemas, of which "$user" is one for a role of that name.
const selectPath = `SELECT set_config('search_path', COALESCE((SELECT string_agg(part, ',' ORDER BY place)
  FROM string_to_table(current_setting('search_path'), ',') WITH ORDINALITY AS path (part, place)
  WHERE CASE trim(part, ' "') WHEN '$user' THEN current_user ELSE trim(part, ' "') END
    NOT IN ('cleanupd', 'cleanupd_trash')), ''), false)`

// HideSchemas makes names without a schema, such as those in the application's triggers, never mean the service's own
// tables.
func HideSchemas(config *pgx.ConnConfig) {
	afterConnect(config, func(ctx context.Context, conn *pgconn.PgConn) error {
		return conn.ExecParams(ctx, selectPath, nil, nil, nil, nil).Read().Err
	})
}

// Reset sets all settings back to those that the connection began with.
func Reset(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "RESET ALL"); err != nil {
		return err
	}
	if begin := conn.Config().AfterConnect; begin != nil {
		return begin(ctx, conn.PgConn())
	}
	return nil
}
