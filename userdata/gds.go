package userdata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// marker parses a marker file's name: the document, and the session that refers to it.
func marker(name string) (guid, session string, ok bool) {
	guid, session, ok = strings.Cut(name, ".session")
	return guid, session, ok && guid != ""
}

// file is a file to delete, and the sessions that it belongs to.
type file struct {
	name     string
	sessions []string
}

// document is a document in the folder that sessions refer to.
type document struct {
	name  string // its path, which is that of its markers without their suffixes
	files []file // to delete: the document first, unless it stays, since it could not be found without its markers
	// strange says that it, or one of its markers, is no regular file. Then nothing of it is deleted: what it is, is
	// not known.
	strange bool
	kept    bool // another marker refers to it
}

// stays is the event about a strange document.
func (d document) stays() Event {
	return logged(
		severity.Error,
		fmt.Sprintf(
			"document %s stays: it, or a marker of it, is no regular file; find out what it is, remove it, and erase "+
				"again",
			d.name,
		),
	)
}

// eachFile calls fn for everything in a folder and its subfolders that is no folder. Links are not followed. A
// subfolder that cannot be read, or is nested too deep, ends it; one that has vanished had nothing, nor has the file
// system's own lost+found.
func eachFile(ctx context.Context, root *os.Root, fn func(name string, entry fs.DirEntry)) error {
	return fs.WalkDir(directories{ctx, root}, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case name == "lost+found" && entry.IsDir():
			return fs.SkipDir
		case name != "." && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir() && strings.Count(name, "/") >= mostDepth:
			return errDeep
		case !entry.IsDir():
			fn(name, entry)
		}
		return nil
	})
}

// walk searches the folder once for the documents that sessions refer to, and reports what it has searched. A document
// stays if another marker keeps it: markers are named by its guid, whatever folder they are in. A subfolder that cannot
// be read ends the walk, since a marker in it may keep a document, and so does a walk beyond its bounds.
func walk(ctx context.Context, root *os.Root, sessions []string) (documents []document, told Event, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, mostTime, errSlow)
	defer stop()
	var (
		looked int
		order  []string
		found  = map[string][]file{} // markers, by the document's path
		kept   = map[string]bool{}   // the guids of documents that another marker refers to
		linked = map[string]bool{}   // the paths of documents with a marker that is no regular file
		sought = set(sessions)
	)
	err = eachFile(ctx, root, func(name string, entry fs.DirEntry) {
		looked++
		guid, session, ok := marker(entry.Name())
		switch {
		case !ok:
			return
		case !sought[session]:
			kept[guid] = true
			return
		}
		at := strings.TrimSuffix(name, ".session"+session)
		linked[at] = linked[at] || !entry.Type().IsRegular()
		if found[at] == nil {
			order = append(order, at)
		}
		found[at] = append(found[at], file{name, []string{session}})
	})
	if err != nil {
		return nil, told, err
	}
	documents = make([]document, len(order))
	for i, at := range order {
		documents[i] = document{at, found[at], linked[at], kept[path.Base(at)]}
		if linked[at] || documents[i].kept || !fs.ValidPath(at) { // as by the guid ".."
			continue
		}
		info, err := root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && !info.Mode().IsRegular():
			documents[i].strange = true
			continue
		} // what cannot be read cannot be deleted either, which will be reported
		documents[i].files = append([]file{{at, sessionsOfFiles(found[at])}}, found[at]...)
	}
	return documents, logged(
		severity.Info,
		fmt.Sprintf(
			"looked through the %d files of the document storage: %d documents are of erased tasks",
			looked,
			len(documents),
		),
	), nil
}

// marks reads the markers beside documents again, just before deletion, since the Forms server may have added some: the
// documents that they refer to stay. It also returns which folders cannot be read.
func marks(ctx context.Context, root *os.Root, documents []document) (marked map[string]bool, unread map[string]error) {
	ctx, stop := context.WithTimeoutCause(ctx, mostTime, errSlow)
	defer stop()
	known, folders := map[string]bool{}, map[string]bool{}
	for _, d := range documents {
		folders[path.Dir(d.name)] = true
		for _, f := range d.files {
			known[f.name] = true
		}
	}
	marked, unread = map[string]bool{}, map[string]error{}
	for folder := range folders {
		entries, err := fs.ReadDir(directories{ctx, root}, folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			unread[folder] = err
		}
		for _, entry := range entries {
			if guid, _, ok := marker(entry.Name()); ok && !entry.IsDir() && !known[path.Join(folder, entry.Name())] {
				marked[path.Join(folder, guid)] = true
			}
		}
	}
	return marked, unread
}

func sessionsOfFiles(files []file) (sessions []string) {
	for _, f := range files {
		sessions = append(sessions, f.sessions...)
	}
	return sessions
}

func set(list []string) map[string]bool {
	m := map[string]bool{}
	for _, s := range list {
		m[s] = true
	}
	return m
}

// CheckFolder returns what is wrong with a document storage's folder.
func CheckFolder(folder string) error {
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", folder)
	}
	return nil
}
