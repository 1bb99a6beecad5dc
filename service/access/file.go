package access

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// reloadEvery is the least time between two checks whether the files have changed. A check happens when the value is
// used.
const reloadEvery = time.Second

// file is a value that is parsed from one or more files, and parsed again when they change. While the new content
// is invalid, for example because only one of two files has been replaced, the previous value stays in use.
type file[T any] struct {
	log   *slog.Logger
	names []string
	parse func(contents ...[]byte) (T, error)

	mu     sync.Mutex
	loaded time.Time
	read   []byte // all contents, whether or not they could be parsed
	value  T
}

// open reads the files for the first time, when invalid content is still an error.
func open[T any](log *slog.Logger, parse func(contents ...[]byte) (T, error), names ...string) (*file[T], error) {
	f := &file[T]{log: log, names: names, parse: parse}
	return f, f.reload()
}

func (f *file[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.loaded) >= reloadEvery {
		if err := f.reload(); err != nil {
			f.log.Error("could not load the file; its previous content remains in use", "error", err)
		}
	}
	return f.value
}

func (f *file[T]) reload() error {
	f.loaded = time.Now()
	var contents [][]byte
	for _, name := range f.names {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		contents = append(contents, content)
	}
	read := bytes.Join(contents, []byte{0})
	if f.read != nil && bytes.Equal(read, f.read) {
		return nil
	}
	f.read = read
	value, err := f.parse(contents...)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(f.names, ", "), err)
	}
	f.value = value
	return nil
}
