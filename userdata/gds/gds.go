// Package gds finds and deletes documents in the folder of a Forms server's document storage (Global Document
// Storage). A document is a file. Each session that refers to it has a marker file next to it, named GUID.sessionID.
// Nothing here is recorded: package userdata records files before it deletes them.
package gds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ParseMarker splits the name of a marker file into the document's GUID and the session that refers to the document.
func ParseMarker(name string) (guid, session string, ok bool) {
	guid, session, ok = strings.Cut(name, ".session")
	return guid, session, ok && guid != ""
}

// File is a file to delete, with the sessions that it belongs to.
type File struct {
	Name     string
	Sessions []string
}

// Document is a document in the folder, with the sessions that refer to it.
type Document struct {
	Path string // the path of its markers without their suffixes
	// Retained says that a marker of another session refers to the document.
	Retained bool
	// Irregular says that the document or one of its markers is not a regular file; then no file may be deleted.
	Irregular bool
	// Files are to be deleted: the document first, unless it is retained, since its markers are needed to find it.
	Files []File
}

// Sessions returns the sessions of all its files, with repetitions.
func (d Document) Sessions() (sessions []string) {
	for _, f := range d.Files {
		sessions = append(sessions, f.Sessions...)
	}
	return sessions
}

// YoungerThan reports whether any file of the document was changed within the last age.
func (d Document) YoungerThan(root *os.Root, age time.Duration) bool {
	return slices.ContainsFunc(d.Files, func(f File) bool {
		info, err := root.Lstat(f.Name)
		return err == nil && time.Since(info.ModTime()) < age
	})
}

// Deletion is an attempt to delete a file. A file that does not exist counts as deleted.
type Deletion struct {
	File
	Err error
}

// Delete deletes the document's own file, unless a new marker refers to it, and then its markers. If its own file
// cannot be deleted, the markers stay, since it could not be found again without them.
func (d Document) Delete(root *os.Root, marked bool) (list []Deletion) {
	for _, f := range d.Files {
		if f.Name == d.Path && marked {
			continue
		}
		err := root.Remove(f.Name)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		list = append(list, Deletion{f, err})
		if err != nil && f.Name == d.Path {
			break
		}
	}
	return list
}

// Search walks through the folder once, and returns the documents of the sessions, and how many files there are. A
// document is retained if any subfolder has a marker of another session with its GUID. Search fails if a subfolder
// cannot be read, since it may have such a marker.
func Search(
	ctx context.Context, root *os.Root, sessions []string,
) (documents []Document, count int, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, maxWalk, errTooSlow)
	defer stop()
	var (
		paths     []string              // paths of documents, in the order of the walk
		markers   = map[string][]File{} // markers by the document's path
		retained  = map[string]bool{}   // guids of documents that other sessions refer to
		irregular = map[string]bool{}   // paths of documents with a marker that is not a regular file
		wanted    = map[string]bool{}
	)
	for _, s := range sessions {
		wanted[s] = true
	}
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
		markers[document] = append(markers[document], File{name, []string{session}})
	})
	if err != nil {
		return nil, 0, err
	}
	for _, p := range paths {
		d := Document{Path: p, Retained: retained[path.Base(p)], Irregular: irregular[p], Files: markers[p]}
		if !d.Irregular && !d.Retained && fs.ValidPath(p) { // a guid ".." is not valid
			d.addItself(root)
		}
		documents = append(documents, d)
	}
	return documents, count, nil
}

// addItself adds the document's own file, if it exists, before its markers. It also adds a file that cannot be
// examined: deleting that file will fail, which will be reported.
func (d *Document) addItself(root *os.Root) {
	info, err := root.Lstat(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err == nil && !info.Mode().IsRegular():
		d.Irregular = true
	default:
		d.Files = append([]File{{d.Path, d.Sessions()}}, d.Files...)
	}
}

// NewMarkers reads the markers again immediately before deletion, since the Forms server may have added some. It
// returns the paths of documents with new markers, and the folders that cannot be read.
func NewMarkers(
	ctx context.Context, root *os.Root, documents []Document,
) (marked map[string]bool, unreadable map[string]error) {
	ctx, stop := context.WithTimeoutCause(ctx, maxWalk, errTooSlow)
	defer stop()
	known, folders := map[string]bool{}, map[string]bool{}
	for _, d := range documents {
		folders[path.Dir(d.Path)] = true
		for _, f := range d.Files {
			known[f.Name] = true
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

// These limit a walk through the folder: how deep subfolders may be nested, how long it may take, and how many
// entries of a folder are read at once.
const (
	maxDepth       = 64
	maxWalk        = 30 * time.Minute
	entriesPerRead = 1000
)

var (
	errTooDeep = fmt.Errorf("its folders are nested more than %d deep", maxDepth)
	errTooSlow = fmt.Errorf("reading it takes longer than %s", maxWalk)
)

// directories reads folders until its context ends. It refuses a pipe that has replaced a folder, since opening the
// pipe would block.
type directories struct {
	ctx  context.Context
	root *os.Root
}

func (d directories) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return d.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}

func (d directories) ReadDir(name string) (entries []fs.DirEntry, err error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for {
		if d.ctx.Err() != nil {
			return nil, context.Cause(d.ctx)
		}
		some, err := f.(fs.ReadDirFile).ReadDir(entriesPerRead)
		entries = append(entries, some...)
		switch {
		case errors.Is(err, io.EOF):
			slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
			return entries, nil
		case err != nil:
			return nil, err
		}
	}
}

// EachFile calls fn for everything in the folder and its subfolders except folders. It does not follow links. It
// fails if a subfolder cannot be read or is nested too deep. It ignores subfolders that have vanished, and the file
// system's own lost+found.
func EachFile(ctx context.Context, root *os.Root, fn func(name string, entry fs.DirEntry)) error {
	return fs.WalkDir(directories{ctx, root}, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case name == "lost+found" && entry.IsDir():
			return fs.SkipDir
		case name != "." && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir() && strings.Count(name, "/") >= maxDepth:
			return errTooDeep
		case !entry.IsDir():
			fn(name, entry)
		}
		return nil
	})
}
