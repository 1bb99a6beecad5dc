package userdata

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// Rows is how many rows were deleted, by table.
type Rows map[string]int64

func (r Rows) add(other Rows) {
	for table, n := range other {
		r[table] += n
	}
}

// Event is something that happened in an erasure; one of its parts is set.
type Event struct {
	Erasure  string    `json:"-"`
	Sequence int64     `json:"-"`
	Time     time.Time `json:"-"`

	Instance *InstanceErased `json:"Instance,omitempty"`
	Task     *TaskErased     `json:"Task,omitempty"`
	Document *DocumentErased `json:"Document,omitempty"`
	File     string          `json:"File,omitempty"`
	Log      *Line           `json:"Log,omitempty"`
	Receipt  *Receipt        `json:"-"` // the last one; read from the record
	Ended    bool            `json:"Ended,omitempty"`
}

// InstanceErased says that a process instance was erased, or would be.
type InstanceErased struct {
	ID         int64  `json:"ID"`
	Invocation string `json:"Invocation"`
	Terminated bool   `json:"Terminated"`
	Rows       Rows   `json:"Rows"`
}

// TaskErased says that an orphan task was erased, or would be.
type TaskErased struct {
	ID   int64 `json:"ID"`
	Rows Rows  `json:"Rows"`
}

// Line is a log message.
type Line struct {
	Level   severity.Level `json:"Level"`
	Message string         `json:"Message"`
}

func logged(level severity.Level, message string) Event {
	return Event{Log: &Line{level, clean(message)}}
}

// deleted is the event about a deleted file. Its name is made valid UTF-8, which messages require.
func deleted(name string) Event { return Event{File: strings.ToValidUTF8(name, "\uFFFD")} }

// longest is how long a message may be, in characters.
const longest = 1000

// clean turns a message, which may quote a server's response, into one line of text that the database can store.
func clean(message string) string {
	text := []rune(printable(message))
	if len(text) > longest {
		text = append(text[:longest-1], '…')
	}
	return string(text)
}

// printable replaces what cannot be printed, or would change how the rest is: control characters, also those that turn
// the direction of writing, and what is not UTF-8.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// cut shortens a text to a number of bytes.
func cut(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

// append writes events to an erasure's log. The erasure's row stays locked until the transaction ends, so that
// sequences are committed in order.
func (e *erasure) append(ctx context.Context, tx pgx.Tx, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	_, err := tx.Exec(
		ctx,
		`WITH last AS (UPDATE cleanupd.erasure SET last_sequence = last_sequence + cardinality($2::jsonb[])
			WHERE id = $1::text::uuid RETURNING last_sequence)
		INSERT INTO cleanupd.erasure_event (erasure_id, sequence, body)
		SELECT $1::text::uuid, last_sequence - cardinality($2::jsonb[]) + n, body
			FROM last, unnest($2::jsonb[]) WITH ORDINALITY AS b (body, n)`,
		e.id,
		events,
	)
	return err
}

// events are those of an erasure after a sequence.
func (d *Database) events(ctx context.Context, id string, after int64) ([]Event, error) {
	return collect(ctx, d.Record, func(row pgx.CollectableRow) (Event, error) {
		var (
			e        = Event{Erasure: id}
			sequence int64
			when     time.Time
			body     []byte
		)
		if err := row.Scan(&sequence, &when, &body); err != nil {
			return e, err
		}
		err := json.Unmarshal(body, &e)
		e.Erasure, e.Sequence, e.Time = id, sequence, when
		return e, err
	}, "SELECT sequence, time, body FROM cleanupd.erasure_event WHERE erasure_id = $1::text::uuid AND sequence > $2 "+
		"ORDER BY sequence LIMIT 1000", id, after)
}

// watchEvery is how often a watcher polls for new events.
const watchEvery = 100 * time.Millisecond

// Watch calls tell for each event of an erasure, past ones first, until its receipt, which it returns.
func (d *Database) Watch(ctx context.Context, id string, tell func(Event) error) (*Receipt, error) {
	for last := int64(0); ; {
		events, err := d.events(ctx, id, last)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			last = e.Sequence
			if e.Ended {
				if e.Receipt, err = d.receipt(ctx, id); err != nil {
					return nil, err
				}
			}
			if err := tell(e); err != nil || e.Ended {
				return e.Receipt, err
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
