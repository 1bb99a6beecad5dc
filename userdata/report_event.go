package userdata

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/cleanupd/cleanupd/internal/severity"
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
	Level   severity.Level `json:"Level"`
	Message string         `json:"Message"`
}

func infof(format string, args ...any) Event { return logf(severity.Info, format, args...) }

func warningf(format string, args ...any) Event { return logf(severity.Warning, format, args...) }

// Errorf returns an event that makes its erasure count as failed.
func errorf(format string, args ...any) Event { return logf(severity.Error, format, args...) }

func logf(level severity.Level, format string, args ...any) Event {
	return Event{Log: &Line{level, clean(fmt.Sprintf(format, args...))}}
}

// FileDeleted makes the name valid UTF-8, as protobuf messages require.
func fileDeleted(name string) Event { return Event{File: strings.ToValidUTF8(name, "\uFFFD")} }

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
