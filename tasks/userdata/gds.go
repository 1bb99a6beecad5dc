package userdata

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/cleanupd/cleanupd/tasks"
)

// sessionsOf are the session ids of a task's documents, by the ids of its form data.
func sessionsOf(task int64, formData ...int64) (ids []string) {
	for _, fd := range formData {
		ids = append(ids, fmt.Sprintf("_wftask%d", fd), fmt.Sprintf("_wftaskformid%d", fd))
	}
	if len(formData) > 0 {
		ids = append(ids, fmt.Sprintf("_wfattach%d", task))
	}
	return ids
}

// marker is what a marker file's name says: the document, and the session that refers to it.
func marker(name string) (guid, session string, ok bool) {
	i := strings.LastIndex(name, ".session")
	if i <= 0 {
		return "", "", false
	}
	return name[:i], name[i+len(".session"):], true
}

// document is a document in the folder, with its markers.
type document struct {
	name    string   // its path, which is that of its markers without their endings
	markers []string // whose sessions are to go
}

// walk looks through the folder once, for the markers of sessions, and the documents that no other marker keeps: these
// are named by their guid, whatever folder they are in. Links are not followed, and nothing outside is reached.
func walk(root *os.Root, sessions map[string]bool) (files int, documents []document, kept map[string]bool, err error) {
	found := map[string]*document{}
	var order []string
	kept = map[string]bool{} // the guids of documents that another marker refers to
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			files++
		}
		guid, session, ok := marker(entry.Name())
		switch {
		case entry.IsDir() || !ok:
			return nil
		case !entry.Type().IsRegular() || !sessions[session]:
			kept[guid] = true
			return nil
		}
		at := path.Join(path.Dir(name), guid)
		if found[at] == nil {
			found[at] = &document{name: at}
			order = append(order, at)
		}
		found[at].markers = append(found[at].markers, name)
		return nil
	})
	for _, at := range order {
		documents = append(documents, *found[at])
	}
	return files, documents, kept, err
}

// file is a file that is to go, and the sessions that it is of.
type file struct {
	name     string
	sessions []string
}

// files are those of a document that are to go: itself first, since it could not be found without its markers.
func (d document) files(root *os.Root, kept map[string]bool) ([]file, error) {
	own := file{name: d.name}
	var files []file
	for _, name := range d.markers {
		_, session, _ := marker(path.Base(name))
		files = append(files, file{name, []string{session}})
		own.sessions = append(own.sessions, session)
	}
	if kept[path.Base(d.name)] {
		return files, nil
	}
	info, err := root.Lstat(d.name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular():
		return files, nil
	case err != nil:
		return nil, err
	}
	return append([]file{own}, files...), nil
}

// eachFile calls do with each file of a folder that is to go: a document before its markers, which stay when it does. It
// tells what it has looked through first.
func eachFile(folder string, sessions map[string]bool, tell func(Event) error, do func(root *os.Root, f file) (gone bool, err error)) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	looked, documents, kept, err := walk(root, sessions)
	if err != nil {
		return err
	}
	if err := tell(logged(tasks.Info, fmt.Sprintf("looked through the %d files of the document storage: %d documents are of erased tasks", looked, len(documents)))); err != nil {
		return err
	}
	for _, d := range documents {
		files, err := d.files(root, kept)
		if err != nil {
			return err
		}
		for _, f := range files {
			gone, err := do(root, f)
			if err != nil {
				return err
			}
			if !gone && f.name == d.name {
				break
			}
		}
	}
	return nil
}

// CheckFolder tells what is wrong with a document storage's folder.
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
