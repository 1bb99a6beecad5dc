package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// health reports that a server cannot write to its database, and with --ready only.
func TestHealthOfAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	s := startServer(t, "--database-url", db.URL())
	health := func(args ...string) (int, string, string) {
		return cleanupd(t, append([]string{"health", "--http-listen", strings.TrimPrefix(s.http, "http://")}, args...)...)
	}
	db.Superuser("ALTER DATABASE " + db.Name + " SET default_transaction_read_only = on")
	db.Cut()
	code, out, errs := health("--ready")
	// the server checks the database only now and then
	for deadline := time.Now().Add(time.Minute); code == 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		code, out, errs = health("--ready")
	}
	if code != 1 || !strings.HasPrefix(errs, "cleanupd: ") || !strings.Contains(errs, " database ") {
		t.Errorf("a database that cannot be written: %d %s %s", code, out, errs)
	}
	if code, _, errs := health(); code != 0 {
		t.Errorf("the process lives: %d %s", code, errs)
	}
}

// A server waits for a database that does not exist yet, logs this once, and serves when it exists. It does not wait
// for one that rejects it.
func TestWaitForDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	later := db.Name + "_later"
	url := strings.Replace(db.URL(), "/"+db.Name, "/"+later, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "serve", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
		"--database-url", url, "--wait-for-database", "1m")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	log := &logged{more: make(chan struct{})}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	log.wait(t.Context(), `waiting for a database.*does not exist`)
	db.Superuser("CREATE DATABASE " + later + " OWNER " + campaigndb.Role)
	t.Cleanup(func() { db.Superuser("DROP DATABASE " + later + " WITH (FORCE)") })
	log.wait(t.Context(), `msg=serving`)
	if said := log.String(); strings.Count(said, "waiting for a database") != 1 ||
		!strings.Contains(said, "msg=serving") {
		t.Error(said)
	}
	if code, _, errs := cleanupd(
		t, "serve", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
		"--database-url", "postgres://127.0.0.1:1/d",
	); code != 1 ||
		strings.Count(errs, "refused") != 1 {
		t.Errorf("each try is told: %d %s", code, errs)
	}
	for args, says := range map[string]string{
		"--wait-for-database 100ms --database-url " + strings.Replace(db.URL(), "/"+db.Name, "/"+db.Name+"_never",
			1): "does not exist",
		"--wait-for-database 1h --database-url " + db.As("nobody_of_that_name"): "does not exist",
	} {
		code, out, errs := cleanupd(t,
			append(strings.Fields("serve --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0"),
				strings.Fields(args)...)...)
		if last := errs[strings.LastIndex(strings.TrimSpace(errs), "\n")+1:]; code != 1 || out != "" ||
			!strings.HasPrefix(last, "cleanupd: ") ||
			!strings.Contains(last, says) {
			t.Errorf("%s: %d %s %s", args, code, out, errs)
		}
	}
}
