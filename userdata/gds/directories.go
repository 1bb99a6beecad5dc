package gds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

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
