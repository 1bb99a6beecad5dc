package userdata

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

// Bounds of a walk through the folder: how deep folders may be nested, how long it may take, and how many entries of a
// folder are read at once.
const (
	mostDepth     = 64
	mostTime      = 30 * time.Minute
	entriesAtOnce = 1000
)

var (
	errDeep = fmt.Errorf("its folders are nested more than %d deep", mostDepth)
	errSlow = fmt.Errorf("going through it takes longer than %s", mostTime)
)

// directories opens the directories below a root, until a context ends. A pipe that has replaced one is refused;
// opening it would block.
type directories struct {
	ctx  context.Context
	root *os.Root
}

// Open implements fs.FS.
func (d directories) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return d.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}

// ReadDir implements fs.ReadDirFS.
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
		some, err := f.(fs.ReadDirFile).ReadDir(entriesAtOnce)
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
