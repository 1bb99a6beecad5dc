package gds

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/userdata/report"
)

// ParseMarker splits the name of a marker file into the document's GUID and the session that refers to the document.
func ParseMarker(name string) (guid, session string, ok bool) {
	guid, session, ok = strings.Cut(name, ".session")
	return guid, session, ok && guid != ""
}

// file is a file to delete, with the sessions that it belongs to.
type file struct {
	name     string
	sessions []string
}

// Document is a document in the folder, with the sessions that refer to it.
type Document struct {
	Path string // the path of its markers without their suffixes
	// Retained says that a marker of another session refers to the document.
	Retained bool

	files []file // to delete: the document first, unless it is retained, since its markers are needed to find it
	// irregular says that the document or one of its markers is not a regular file; then none of its files is deleted.
	irregular bool
}

func (d Document) retainedEvent() report.Event {
	return report.Errorf(
		"document %s is retained: it or one of its markers is not a regular file; find out what it is, remove it, and "+
			"erase again",
		d.Path,
	)
}

// YoungerThan reports whether any file of the document was changed within the last age.
func (d Document) YoungerThan(root *os.Root, age time.Duration) bool {
	return slices.ContainsFunc(d.files, func(f file) bool {
		info, err := root.Lstat(f.name)
		return err == nil && time.Since(info.ModTime()) < age
	})
}

func Events(documents []Document) (events []report.Event) {
	for _, d := range documents {
		if d.irregular {
			events = append(events, d.retainedEvent())
			continue
		}
		for _, f := range d.files {
			events = append(events, report.FileDeleted(f.name))
		}
	}
	return events
}

// Search walks through the folder once, and returns the documents of the sessions, and an event with the number of
// files. A document is retained if any subfolder has a marker of another session with its GUID. Search fails if a
// subfolder cannot be read, since it may have such a marker.
func Search(
	ctx context.Context, root *os.Root, sessions []string,
) (documents []Document, summary report.Event, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, maxWalk, errTooSlow)
	defer stop()
	var (
		count     int
		paths     []string              // paths of documents, in the order of the walk
		markers   = map[string][]file{} // markers by the document's path
		retained  = map[string]bool{}   // guids of documents that other sessions refer to
		irregular = map[string]bool{}   // paths of documents with a marker that is not a regular file
		wanted    = setOf(sessions)
	)
	err = EachFile(ctx, root, func(name string, entry fs.DirEntry) {
		count++
		guid, session, ok := ParseMarker(entry.Name())
		switch {
		case !ok:
			return
		case !wanted[session]:
			retained[guid] = true
			return
		}
		document := strings.TrimSuffix(name, ".session"+session)
		irregular[document] = irregular[document] || !entry.Type().IsRegular()
		if markers[document] == nil {
			paths = append(paths, document)
		}
		markers[document] = append(markers[document], file{name, []string{session}})
	})
	if err != nil {
		return nil, summary, err
	}
	for _, p := range paths {
		d := Document{Path: p, Retained: retained[path.Base(p)], files: markers[p], irregular: irregular[p]}
		if !d.irregular && !d.Retained && fs.ValidPath(p) { // a guid ".." is not valid
			d.addItself(root)
		}
		documents = append(documents, d)
	}
	return documents, report.Infof("searched the %d files of the document storage: %d documents belong to erased tasks",
		count, len(documents)), nil
}

// addItself adds the document's own file, if it exists, before its markers. It also adds a file that cannot be
// examined: deleting that file will fail, which will be reported.
func (d *Document) addItself(root *os.Root) {
	info, err := root.Lstat(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err == nil && !info.Mode().IsRegular():
		d.irregular = true
	default:
		d.files = append([]file{{d.Path, sessionsOf(d.files)}}, d.files...)
	}
}

// newMarkers reads the markers again immediately before deletion, since the Forms server may have added some. It
// returns the paths of documents with new markers, and the folders that cannot be read.
func newMarkers(
	ctx context.Context, root *os.Root, documents []Document,
) (marked map[string]bool, unreadable map[string]error) {
	ctx, stop := context.WithTimeoutCause(ctx, maxWalk, errTooSlow)
	defer stop()
	known, folders := map[string]bool{}, map[string]bool{}
	for _, d := range documents {
		folders[path.Dir(d.Path)] = true
		for _, f := range d.files {
			known[f.name] = true
		}
	}
	marked, unreadable = map[string]bool{}, map[string]error{}
	for folder := range folders {
		entries, err := fs.ReadDir(directories{ctx, root}, folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			unreadable[folder] = err
		}
		for _, entry := range entries {
			guid, _, ok := ParseMarker(entry.Name())
			if ok && !entry.IsDir() && !known[path.Join(folder, entry.Name())] {
				marked[path.Join(folder, guid)] = true
			}
		}
	}
	return marked, unreadable
}

func sessionsOf(files []file) (sessions []string) {
	for _, f := range files {
		sessions = append(sessions, f.sessions...)
	}
	return sessions
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range list {
		set[s] = true
	}
	return set
}
