package vacuum

import (
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// These limit one log message, so that hundreds of tables make a few messages.
const (
	maxLines   = 100
	flushEvery = 10 * time.Second
)

// Output collects the notices in which PostgreSQL names the tables that it vacuums and analyzes, or skips.
type Output struct {
	lines   []string
	flushed time.Time

	table   Storage // the table of the current command
	begun   bool    // whether the server has begun a table
	skipped error
}

func NewOutput() *Output { return &Output{flushed: time.Now()} }

func (o *Output) Start(s Storage) { o.table, o.begun, o.skipped = s, false, nil }

// Skipped returns the notice by which PostgreSQL skipped the table of the current command, or a part of the
// command, with its SQLSTATE; nil if it did not skip anything.
func (o *Output) Skipped() error { return o.skipped }

// Add adds a notice. It leaves out notices about a TOAST table or with details, such as the pages that were
// scanned. Notices are recognized by the functions of the server that send them, which are the same in all
// languages.
func (o *Output) Add(n *pgconn.Notice) {
	switch {
	case isSkip(n):
		// ANALYZE of a parent begins with the parent. Partitions that it skips later have their own commands.
		if !o.table.Parent || !o.begun {
			o.skipped = (*pgconn.PgError)(n)
		}
	case slices.Contains([]string{"heap_vacuum_rel", "do_analyze_rel"}, n.Routine),
		// before PostgreSQL 15 this is among details that have the name without the schema
		n.Routine == "lazy_scan_heap" && strings.Contains(n.Message, o.table.Schema+"."+o.table.Name):
		o.begun = true
		if !strings.ContainsRune(n.Message, '\n') && !strings.Contains(n.Message, "pg_toast.") {
			o.lines = append(o.lines, n.Severity+":  "+n.Message)
		}
	}
}

// isSkip reports whether the server skips a table, because of a lock or because of the table's owner.
func isSkip(n *pgconn.Notice) bool {
	switch n.Routine {
	case "expand_vacuum_rel", "vacuum_open_relation":
		return n.Code == pgerrcode.LockNotAvailable // with another code, the table was dropped
	case "vacuum_is_relation_owner", "vacuum_is_permitted_for_relation": // the names before and since PostgreSQL 16
		return true
	}
	return false
}

func (o *Output) Due() bool { return len(o.lines) >= maxLines || time.Since(o.flushed) >= flushEvery }

// Flush returns the lines as one message; none if there are no lines.
func (o *Output) Flush() (messages []string) {
	if len(o.lines) > 0 {
		messages = []string{strings.Join(o.lines, "\n")}
	}
	o.lines, o.flushed = nil, time.Now()
	return messages
}
