package localpg

import (
	"archive/zip"
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cleanupd/cleanupd/internal/suite"
)

// PostgreSQL is downloaded, once, from a repository that offers the one of this machine. It runs, also for root. If the
// repository has none, the error says so.
func TestFetch(t *testing.T) {
	suite.Only(t, suite.Long)
	owner, err := serverUser()
	if err != nil {
		t.Fatal(err)
	}
	here, err := findBinaries(owner)
	if err != nil {
		t.Skip(err)
	}
	cache, remove, err := makeDir(owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	archive := archiveOf(t, here)
	var downloads atomic.Int64
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".jar") || strings.HasPrefix(r.URL.Path, "/none") {
			http.NotFound(w, r)
			return
		}
		downloads.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(len(archive)))
		_, _ = w.Write(archive)
	}))
	t.Cleanup(repository.Close)
	t.Setenv("CLEANUPD_POSTGRES_REPOSITORY", repository.URL)
	for range 2 {
		bin, err := fetch(owner, cache)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(filepath.Dir(bin)) != cache {
			t.Errorf("it is in %s, not in %s", bin, cache)
		}
		s, err := start(t.Context(), bin, owner)
		if err != nil {
			t.Fatal(err)
		}
		s.Stop()
	}
	if downloads.Load() != 1 {
		t.Errorf("%d downloads", downloads.Load())
	}
	t.Setenv("CLEANUPD_POSTGRES_REPOSITORY", repository.URL+"/none")
	empty, remove, err := makeDir(owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	if bin, err := fetch(owner, empty); err == nil || !strings.Contains(err.Error(), "no version found") {
		t.Errorf("an empty repository gave %s, %v", bin, err)
	}
}

// archiveOf packs the PostgreSQL whose programs are in bin, in the format of the repository.
func archiveOf(t *testing.T, bin string) []byte {
	t.Helper()
	initdb, err := filepath.EvalSymlinks(filepath.Join(bin, "initdb"))
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(filepath.Dir(initdb))
	parts := []string{
		"--create", "--dereference", "--xz", "--exclude=bitcode", "--directory", root, "bin/initdb", "bin/postgres",
		"bin/pg_ctl", "lib",
	}
	if _, err := os.Stat(filepath.Join(root, "share")); err == nil {
		parts = append(parts, "share")
	}
	packed := exec.CommandContext(t.Context(), "tar", parts...)
	packed.Env = append(os.Environ(), "XZ_OPT=-0")
	text, err := packed.Output()
	if err != nil {
		t.Fatalf("tar and xz are needed: %v", err)
	}
	var jar bytes.Buffer
	zipped := zip.NewWriter(&jar)
	file, err := zipped.Create("postgres.txz")
	if err == nil {
		_, err = file.Write(text)
	}
	if err != nil || zipped.Close() != nil {
		t.Fatal(err)
	}
	return jar.Bytes()
}
