package pgtest

import (
	"cmp"
	"errors"
	"os"

	"github.com/cleanupd/cleanupd/internal/tempdir"
)

// useTempDir makes this process and its children put all temporary files in one folder. The folder is in memory if
// there is enough of it, unless TMPDIR names another place.
func useTempDir() (remove func(), err error) {
	dir, remove, err := tempdir.New(cmp.Or(os.Getenv("TMPDIR"), memoryDir(), os.TempDir()), "cleanupd-test-")
	if err != nil {
		return nil, err
	}
	// servers run as another user if the tests run as root
	return remove, errors.Join(os.Chmod(dir, 0o711), os.Setenv("TMPDIR", dir)) //nolint:gosec // see above
}
