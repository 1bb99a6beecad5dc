// Package tempdir makes temporary folders that do not outlive their process for long: if a process was killed, the
// next one removes its folders.
package tempdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockFile is locked in each folder for as long as its process lives.
const lockFile = ".lock"

// New makes a folder in parent, whose name is the prefix and a random number. It also removes the folders with this
// prefix in parent that processes of this user have left behind.
func New(parent, prefix string) (dir string, remove func(), err error) {
	sweep(parent, prefix)
	dir, err = os.MkdirTemp(parent, prefix)
	if err != nil {
		return "", nil, err
	}
	lock, err := lock(dir, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}, nil
}

// sweep removes the folders that no living process has locked. It leaves a folder without a lock file alone, since
// that is just being made, or was made by another program.
func sweep(parent, prefix string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		dir := filepath.Join(parent, entry.Name())
		if !strings.HasPrefix(entry.Name(), prefix) || !entry.IsDir() {
			continue
		}
		if lock, err := lock(dir, 0); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}

// lock requires a lock file of this user, and fails if another process has locked it.
func lock(dir string, flag int) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|syscall.O_NOFOLLOW|flag, 0o600)
	if err != nil {
		return nil, err
	}
	var stat syscall.Stat_t
	err = errors.Join(syscall.Fstat(int(file.Fd()), &stat),
		syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	if err == nil && int(stat.Uid) != os.Geteuid() {
		err = os.ErrPermission
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
