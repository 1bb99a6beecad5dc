// Package audit records who did what.
package audit

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/service/access"
)

// OK is the result of a call that succeeded. Other results are the names of the other status codes.
const OK = "OK"

// Details use the names of the API. They contain no user data.
type Details map[string]any

// DB is a transaction, a connection or a pool.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// act is a call that changes something, or tries to.
type act struct {
	db      DB
	log     *slog.Logger
	caller  access.Caller
	rpc     string
	details Details
	noted   bool // whether the call is in the table
	settled bool // whether its result has been recorded
	// optional means that the call is recorded only once Note or Insist is called.
	optional bool
}

type key struct{}

// Begin returns a context for a call of the RPC SERVICE/METHOD. db stores the entries that are not part of the
// transaction of a change. An optional call is recorded only after Note or Insist.
func Begin(
	ctx context.Context, db DB, log *slog.Logger, caller access.Caller, rpc string, optional bool,
) context.Context {
	return context.WithValue(ctx, key{},
		&act{db: db, log: log, caller: caller, rpc: rpc, details: Details{}, optional: optional})
}

// Insist makes sure that the call is recorded even if it fails.
func Insist(ctx context.Context) {
	if a, ok := ctx.Value(key{}).(*act); ok {
		a.optional = false
	}
}

// Note writes the entry in the transaction of the change, or in its own if tx is nil. It leaves out details that
// are empty or false. It does nothing if the context carries no call.
func Note(ctx context.Context, tx DB, details Details) error {
	a, ok := ctx.Value(key{}).(*act)
	if !ok {
		return nil
	}
	if tx == nil {
		tx = a.db
	}
	maps.DeleteFunc(details, func(_ string, value any) bool { return value == nil || reflect.ValueOf(value).IsZero() })
	a.details, a.optional = details, false
	err := a.append(ctx, tx, OK)
	a.noted = err == nil
	return err
}

// Settle records the result once: in the log, and in the table unless Note has already written it there.
func Settle(ctx context.Context, result string) {
	a, ok := ctx.Value(key{}).(*act)
	if !ok || a.settled || a.optional {
		return
	}
	a.settled = true
	a.record(ctx, result)
}

// Repeat records in one entry that a call was repeated with the same result.
func Repeat(db DB, log *slog.Logger, caller access.Caller, rpc, result string, times int) {
	(&act{db: db, log: log, caller: caller, rpc: rpc, details: Details{"times": times}}).record(context.Background(),
		result)
}

func (a *act) record(ctx context.Context, result string) {
	if result != OK || !a.noted {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := a.append(ctx, a.db, result); err != nil {
			a.log.Error("could not write to the audit table", "error", err)
		}
	}
	c := a.caller
	entry := []any{"rpc", a.rpc, "subject", c.Subject, "role", c.Role.String()}
	if c.By != "" {
		entry = append(entry, "by", c.By)
	}
	entry = append(entry, "address", c.Address)
	if len(a.details) > 0 {
		details, _ := json.Marshal(a.details) // as stored, because a text handler would print pointers
		entry = append(entry, "details", json.RawMessage(details))
	}
	a.log.Info("audit", append(entry, "result", result)...)
}

func (a *act) append(ctx context.Context, db DB, result string) error {
	c := a.caller
	_, err := db.Exec(
		ctx,
		"INSERT INTO cleanupd.audit (subject, role, by, address, rpc, details, result) VALUES ($1, $2, $3, $4, $5, "+
			"$6, $7)",
		connection.Text(c.Subject), c.Role.String(), connection.Text(c.By), c.Address, a.rpc, a.details,
		connection.Text(result),
	)
	return err
}

type Entry struct {
	Time    time.Time       `json:"time"`
	Subject connection.Text `json:"subject"`
	Role    string          `json:"role"`
	By      string          `json:"by"`
	Address string          `json:"address"`
	RPC     string          `json:"rpc"`
	Details Details         `json:"details"`
	Result  string          `json:"result"`
}

const Columns = "time, subject, role, by, address, rpc, details, result"
