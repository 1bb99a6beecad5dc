// Package contexts stores the servers that a user works with, by name, in a file in the user's configuration folder.
// The file contains paths of files with credentials, but no credentials. Package rpc reads it for every client command,
// and the command context of internal/cli changes it.
package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/cleanupd/cleanupd/internal/flags"
)

// Context is a server, and how a client authenticates itself there.
type Context struct {
	Address     string `json:"server"`
	TLS         bool   `json:"tls,omitempty"`
	CA          string `json:"tlsCa,omitempty"`
	Certificate string `json:"clientCert,omitempty"`
	Key         string `json:"clientKey,omitempty"`
	TokenFile   string `json:"tokenFile,omitempty"`
}

// File has the contexts by name. Current may be empty.
type File struct {
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

var validName = regexp.MustCompile(`^[\pL\pN][\pL\pN._-]{0,63}$`)

func CheckName(name string) error {
	if !validName.MatchString(name) {
		return flags.Errorf("%q is not a name for a context: use letters, digits, '.', '_' and '-', at most 64", name)
	}
	return nil
}

func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

func (f *File) Get(name string) (Context, error) {
	c, ok := f.Contexts[name]
	switch {
	case ok:
		return c, nil
	case len(f.Contexts) == 0:
		return c, flags.Errorf("there is no context %q, nor any other: cleanupd context add adds one", name)
	}
	return c, flags.Errorf("there is no context %q: there are %s", name, strings.Join(f.Names(), ", "))
}

// Set reports whether it replaced a context of that name.
func (f *File) Set(name string, c Context) (replaced bool) {
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	_, replaced = f.Contexts[name]
	f.Contexts[name] = c
	return replaced
}

// Remove also clears Current if it names the removed context.
func (f *File) Remove(name string) {
	delete(f.Contexts, name)
	if f.Current == name {
		f.Current = ""
	}
}

func path() (string, error) {
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("contexts have no place: %w", err)
	}
	return filepath.Join(folder, "cleanupd", "contexts.yaml"), nil
}

// Load returns no contexts if there is no file, or if the user has no configuration folder.
func Load() (*File, error) {
	f := &File{}
	name, err := path()
	if err != nil {
		return f, nil //nolint:nilerr // a service without a home has no contexts
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = yaml.UnmarshalStrict(text, f)
	}
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, flags.Errorf("the file of contexts cannot be used; mend or remove it: %s: %w", name, err)
	}
	return f, nil
}

func (f *File) check() error {
	if _, ok := f.Contexts[f.Current]; f.Current != "" && !ok {
		return fmt.Errorf("the current context %q is missing", f.Current)
	}
	for _, name := range f.Names() {
		if err := CheckName(name); err != nil {
			return err
		}
		if f.Contexts[name].Address == "" {
			return fmt.Errorf("the context %q has no server", name)
		}
	}
	return nil
}

// Change calls change, and saves the file unless that fails. Other commands that change the file wait meanwhile.
func Change(change func(f *File) error) (err error) {
	name, err := path()
	if err != nil {
		return err
	}
	folder := filepath.Dir(name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	lock, err := os.Open(folder) // not the file itself, since it is replaced and its lock would be lost
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // closing it releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	f, err := Load()
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return err
	}
	return f.save(name)
}

// save replaces the file atomically, so that no other command ever reads a part of it. It follows links.
func (f *File) save(name string) (err error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	text, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(name), "contexts-*") // the file has mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
