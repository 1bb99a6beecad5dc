package vacuum

import (
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Limits of one log message, so that hundreds of tables make a few events.
const (
	maxLines   = 100
	flushEvery = 10 * time.Second
)

// Output collects the notices in which PostgreSQL names the tables that it vacuums and analyzes.
type Output struct {
	lines   []string
	flushed time.Time
}

// NewOutput returns an empty output.
func NewOutput() *Output { return &Output{flushed: time.Now()} }

// Add adds a notice, unless it is about a TOAST table or has details, such as the pages that were scanned. It
// recognizes notices by the functions of the server that send them, which are the same in all languages.
func (o *Output) Add(n *pgconn.Notice) {
	if slices.Contains([]string{"heap_vacuum_rel", "do_analyze_rel"}, n.Routine) &&
		!strings.ContainsRune(n.Message, '\n') && !strings.Contains(n.Message, "pg_toast.") {
		o.lines = append(o.lines, n.Severity+":  "+n.Message)
	}
}

// Due reports whether the lines are to be logged now.
func (o *Output) Due() bool { return len(o.lines) >= maxLines || time.Since(o.flushed) >= flushEvery }

// Flush returns the lines as one message, or no message without lines, and starts anew.
func (o *Output) Flush() (messages []string) {
	if len(o.lines) > 0 {
		messages = []string{strings.Join(o.lines, "\n")}
	}
	o.lines, o.flushed = nil, time.Now()
	return messages
}
