package localpg

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cleanupd/cleanupd/internal/daemon"
	"github.com/cleanupd/cleanupd/internal/tempdir"
)

// Cache is a folder for the files of a new server. Start copies them from there, in a tenth of the processor time that
// initdb takes, or leaves them there the first time. All servers made in this way have the same system identifier. If
// Cache is "", Start always runs initdb. Tests set it before they start servers.
var Cache string

// initialize makes the files of a new server.
func (s *Server) initialize(ctx context.Context) error {
	program := filepath.Join(s.bin, "initdb")
	args := []string{
		"--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
	}
	cached := ""
	if Cache != "" {
		info, err := os.Stat(program)
		if err != nil {
			return err
		}
		hash := fnv.New64a()
		_, _ = fmt.Fprint(hash, program, info.Size(), info.ModTime().UnixNano(), s.owner, args)
		cached = filepath.Join(Cache, fmt.Sprintf("initdb-%x", hash.Sum64()))
		if copyFolder(ctx, cached, s.data()) == nil {
			return nil
		}
		if err := os.RemoveAll(s.data()); err != nil {
			return err
		}
	}
	initdb := daemon.Command(s.owner, program, append(args, "--pgdata="+s.data())...)
	initdb.Dir = s.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if cached != "" {
		_ = keep(ctx, s.data(), cached) // without it, the next server takes longer to start
	}
	return nil
}

// keep copies a folder to the cache. It fails if another process has just done so.
func keep(ctx context.Context, from, cached string) error {
	if err := os.MkdirAll(Cache, 0o700); err != nil {
		return err
	}
	dir, remove, err := tempdir.New(Cache, "copy-")
	if err != nil {
		return err
	}
	defer remove()
	half := filepath.Join(dir, "data")
	if err := copyFolder(ctx, from, half); err != nil {
		return err
	}
	return os.Rename(half, cached)
}

// copyFolder keeps the owner and the mode of each file.
func copyFolder(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-R", "-p", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w\n%s", from, err, out)
	}
	return nil
}
