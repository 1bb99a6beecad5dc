package userdata

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Event has exactly one of its parts set, except Receipt, which comes with Ended.
type Event struct {
	Erasure  string    `json:"-"` // empty in a dry run
	Sequence int64     `json:"-"`
	Time     time.Time `json:"-"`

	Instance *InstanceErased `json:"Instance,omitempty"`
	Task     *TaskErased     `json:"Task,omitempty"`
	Document *DocumentErased `json:"Document,omitempty"`
	File     string          `json:"File,omitempty"` // the path of a deleted file
	Log      *Line           `json:"Log,omitempty"`
	Receipt  *Receipt        `json:"-"`               // set with Ended; read from the record
	Ended    bool            `json:"Ended,omitempty"` // whether this is the last event
}

// InstanceErased is a process instance that was erased, or would be in a dry run.
type InstanceErased struct {
	ID         int64      `json:"ID"`
	Invocation string     `json:"Invocation"`
	Terminated bool       `json:"Terminated"` // whether it was running
	Rows       forms.Rows `json:"Rows"`
}

// TaskErased is an orphan task that was erased, or would be in a dry run.
type TaskErased struct {
	ID   int64      `json:"ID"`
	Rows forms.Rows `json:"Rows"`
}

// DocumentErased is a document that a sweep deleted from the database, or would delete in a dry run.
type DocumentErased struct {
	ID       string     `json:"ID"`
	Sessions []string   `json:"Sessions"`
	Rows     forms.Rows `json:"Rows"`
}

type Line struct {
	Level   message.Severity `json:"Level"`
	Message string           `json:"Message"`
}

func infof(format string, args ...any) Event { return logf(message.Info, format, args...) }

func warningf(format string, args ...any) Event { return logf(message.Warning, format, args...) }

// errorf returns an event that makes its erasure count as failed.
func errorf(format string, args ...any) Event { return logf(message.Error, format, args...) }

func logf(level message.Severity, format string, args ...any) Event {
	return Event{Log: &Line{level, clean(fmt.Sprintf(format, args...))}}
}

// maxMessage is in characters.
const maxMessage = 1000

// clean makes a message, which may quote a server's response, one line of text that the database can store. It
// replaces control characters, characters that change the direction of writing, and invalid UTF-8 by spaces.
func clean(message string) string {
	text := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, message))
	if len(text) > maxMessage {
		text = append(text[:maxMessage-1], '…')
	}
	return string(text)
}

// fileDeleted makes the name valid UTF-8, as protobuf messages require.
func fileDeleted(name string) Event { return Event{File: strings.ToValidUTF8(name, "\uFFFD")} }

// pollInterval is how long Watch waits before it looks for new events again.
const pollInterval = 100 * time.Millisecond

// Watch calls fn for the erasure's past events and then for new ones, until the erasure ends, and returns the
// receipt.
func (m *Manager) Watch(ctx context.Context, id string, fn func(Event) error) (*Receipt, error) {
	for last := int64(0); ; {
		events, err := m.events(ctx, id, last)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			last = e.Sequence
			if e.Ended {
				if e.Receipt, err = m.Receipt(ctx, id); err != nil {
					return nil, err
				}
			}
			if err := fn(e); err != nil || e.Ended {
				return e.Receipt, err
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *Manager) events(ctx context.Context, erasure string, after int64) ([]Event, error) {
	rows, _ := m.Record.Query(ctx, `SELECT sequence, time, body FROM cleanupd.erasure_event
		WHERE erasure_id = $1::text::uuid AND sequence > $2 ORDER BY sequence LIMIT 1000`, erasure, after)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		var sequence int64
		var when time.Time
		err = row.Scan(&sequence, &when, &e)
		e.Erasure, e.Sequence, e.Time = erasure, sequence, when
		return e, err
	})
}

// appendEvents adds events to the erasure. It locks the erasure's row until the transaction ends, so that events are
// committed in the order of their sequence numbers.
func (e record) appendEvents(ctx context.Context, tx pgx.Tx, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	_, err := e.exec(ctx, tx, `WITH last AS (
			UPDATE cleanupd.erasure SET last_sequence = last_sequence + cardinality($2::jsonb[])
			WHERE id = $1::text::uuid RETURNING last_sequence)
		INSERT INTO cleanupd.erasure_event (erasure_id, sequence, body)
		SELECT $1::text::uuid, last_sequence - cardinality($2::jsonb[]) + n, body
			FROM last, unnest($2::jsonb[]) WITH ORDINALITY AS b (body, n)`, events)
	return err
}
