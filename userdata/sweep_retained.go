package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/gds"
)

// kind is the kind of a retained document, by its sessions.
type retention int

const (
	kindOwned  retention = iota // a session names a task or form data
	kindMinus1                  // every session is "-1", which Forms uses for some drafts
	kindOther
	kindNone
)

// kindNames are for people.
var kindNames = [...]string{"of tasks and form data", `of the session "-1"`, "of other sessions", "without a session"}

func kindOf(sessions []string) retention {
	switch {
	case len(sessions) == 0:
		return kindNone
	case slices.ContainsFunc(sessions, ownedSession.MatchString):
		return kindOwned
	case !slices.ContainsFunc(sessions, func(s string) bool { return s != "-1" }):
		return kindMinus1
	}
	return kindOther
}

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
	return infof("documents retained: %s", strings.Join(parts, ", "))
}

// retainedInDatabase reports all documents in the database except stale ones. It also reports chunks that belong to
// no document, which no session leads to.
func retainedInDatabase(
	ctx context.Context, tx *forms.Transaction, sessions map[string][]string, stale []string,
) (Event, error) {
	sizes := map[string]int64{}
	var document sql.NullString
	var size, chunks, bytes int64
	query := "SELECT documentid, COALESCE(OCTET_LENGTH(content), 0) FROM tb_dm_chunk"
	err := tx.Each(ctx, query, nil, []any{&document, &size}, func() {
		if document.Valid {
			sizes[document.String] += size
			return
		}
		chunks++
		bytes += size
	})
	for _, document := range stale {
		delete(sizes, document)
	}
	event := retainedEvent(sizes, sessions)
	if chunks > 0 {
		event.Log.Message += fmt.Sprintf("; and %d chunks without a document (%d bytes)", chunks, bytes)
	}
	return event, err
}

// retainedInFolder reports all documents in the folder except the stale ones, which are given by their paths.
func retainedInFolder(ctx context.Context, root *os.Root, stale []string) (Event, error) {
	isStale, sizes, sessions := map[string]bool{}, map[string]int64{}, map[string][]string{}
	for _, name := range stale {
		isStale[name] = true
	}
	err := gds.EachFile(ctx, root, func(name string, entry fs.DirEntry) {
		guid, session, ok := gds.ParseMarker(entry.Name())
		switch info, err := entry.Info(); {
		case ok:
			sessions[guid] = append(sessions[guid], session)
		case err == nil && !isStale[name]:
			sizes[path.Base(name)] += info.Size()
		}
	})
	return retainedEvent(sizes, sessions), err
}
