// Command fetch downloads PostgreSQL into the user's cache, unless it is there, and prints the folder of its programs.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

func main() {
	dir, err := fetch()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

// fetch lets embedded-postgres download the programs and unpack them. It has no call for that alone: a server is started and
// stopped.
func fetch() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	base := filepath.Join(cache, "cleanupd", "postgres-"+runtime.GOARCH)
	bin := filepath.Join(base, "bin")
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err == nil {
		return bin, nil
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	runtimeDir, err := os.MkdirTemp("", "cleanupd-pg-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(runtimeDir) }()
	pg := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().Version(embeddedpostgres.V17).Port(uint32(port)).
		BinariesPath(base).CachePath(filepath.Join(cache, "cleanupd")).RuntimePath(runtimeDir).Logger(io.Discard))
	if err := pg.Start(); err != nil {
		return "", err
	}
	return bin, pg.Stop()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
