package userdata

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// kind is a kind of documents, by their sessions.
type kind int

const (
	kindTasks  kind = iota // at least one session is named like those of tasks and form data
	kindMinus1             // every session is "-1", as Forms names those of some drafts
	kindOthers
	kindNone
)

// kindNames are the kinds in words.
var kindNames = [...]string{"of tasks and form data", `of the session "-1"`, "of other sessions", "without a session"}

// kindOf returns the kind of a document with some sessions.
func kindOf(sessions []string) kind {
	switch {
	case len(sessions) == 0:
		return kindNone
	case slices.ContainsFunc(sessions, ofTask.MatchString):
		return kindTasks
	case !slices.ContainsFunc(sessions, func(s string) bool { return s != "-1" }):
		return kindMinus1
	}
	return kindOthers
}

// retainedEvent reports how many documents there are, and how many bytes they have, by kind.
func retainedEvent(sizes map[string]int64, sessions map[string][]string) Event {
	var documents, bytes [len(kindNames)]int64
	for document, size := range sizes {
		k := kindOf(sessions[document])
		documents[k]++
		bytes[k] += size
	}
	var parts []string
	for k, name := range kindNames {
		parts = append(parts, fmt.Sprintf("%d %s (%d bytes)", documents[k], name, bytes[k]))
	}
	return logged(severity.Info, "documents retained: "+strings.Join(parts, ", "))
}

// retainedInDatabase reports the documents in the database, by the sessions of all of them, without those that a sweep
// would delete.
func retainedInDatabase(
	ctx context.Context,
	tx *transaction,
	sessions map[string][]string,
	stale []string,
) (Event, error) {
	deleted, sizes := set(stale), map[string]int64{}
	var document string
	var size int64
	err := tx.each(
		ctx,
		"SELECT documentid, COALESCE(OCTET_LENGTH(content), 0) FROM tb_dm_chunk WHERE documentid IS NOT NULL",
		nil,
		[]any{&document, &size},
		func() {
			if !deleted[document] {
				sizes[document] += size
			}
		},
	)
	return retainedEvent(sizes, sessions), err
}

// retainedInFolder reports the documents in the folder, without those that a sweep would delete, by their paths.
func retainedInFolder(ctx context.Context, root *os.Root, stale []string) (Event, error) {
	deleted, sizes, sessions := set(stale), map[string]int64{}, map[string][]string{}
	err := eachFile(ctx, root, func(name string, entry fs.DirEntry) {
		guid, session, ok := marker(entry.Name())
		switch info, err := entry.Info(); {
		case ok:
			sessions[guid] = append(sessions[guid], session)
		case err == nil && !deleted[name]:
			sizes[path.Base(name)] += info.Size()
		}
	})
	return retainedEvent(sizes, sessions), err
}
