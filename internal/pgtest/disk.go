package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/cleanupd/cleanupd/internal/localpg"
)

// Disk holds nothing but a database's tables. The server's WAL is elsewhere.
type Disk struct{ dir string }

// ErrNotRoot means that no disk can be mounted, since the process is not root's.
var ErrNotRoot = errors.New("only root can mount a disk that fills up")

// OnDisk moves a private database to a new disk. It fails with ErrNotRoot if the process is not root's.
func OnDisk(t testing.TB, db *DB, server *localpg.Server) (*Disk, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	var data string
	super := db.For("postgres")
	if err := super.QueryRow(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	super.Close()
	var owner syscall.Stat_t
	if err := syscall.Stat(data, &owner); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cleanupd-disk-") // t.TempDir is in a folder that the server's user can not enter
	if err != nil {
		t.Fatal(err)
	}
	d := &Disk{dir}
	if err := d.mount(fmt.Sprintf("size=1g,mode=0700,uid=%d,gid=%d", owner.Uid, owner.Gid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if out, err := exec.CommandContext(context.Background(), "umount", d.dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
		_ = os.Remove(d.dir)
	})
	db.Reset()
	db.superuser("postgres", fmt.Sprintf("CREATE TABLESPACE small LOCATION '%s'", d.dir))
	db.superuser("postgres", "ALTER DATABASE "+db.Name+" SET TABLESPACE small")
	return d, nil
}

func (d *Disk) mount(options string) error {
	if out, err := exec.CommandContext(context.Background(), "mount", "-t", "tmpfs", "-o", options, "tmpfs", d.dir).
		CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s: %w: %s", options, err, out)
	}
	return nil
}

func (d *Disk) Fill() (err error) {
	for range 100 { // the database may just have grown
		var is syscall.Statfs_t
		if err := syscall.Statfs(d.dir, &is); err != nil {
			return err
		}
		if err = d.mount(fmt.Sprintf("remount,nr_blocks=%d", is.Blocks-is.Bfree)); err == nil {
			return nil
		}
	}
	return err
}

func (d *Disk) Free() error { return d.mount("remount,size=1g") }
