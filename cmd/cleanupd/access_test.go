package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/testca"
)

func tokenFile(t *testing.T, role, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(
		path, fmt.Appendf(nil, "%s the-%[1]s %x\n", role, sha256.Sum256([]byte(secret))), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	return path
}

// A server on a public address admits callers with a token or a certificate, within the rights of their role, and
// records who did what.
func TestAccess(t *testing.T) {
	t.Parallel()
	ca, db := testca.New(t), pgtest.Campaign(t)
	cert, key := ca.Files(ca.Server())
	clientCert, clientKey := ca.Files(ca.Client("grafana"))
	r := startServer(t, "--database-url", db.URL(), "--grpc-listen", "0.0.0.0:0", "--http-listen", "0.0.0.0:0",
		"--tls-cert", cert, "--tls-key", key, "--token-file", tokenFile(t, "operator", "open sesame"),
		"--tls-client-ca", ca.File(), "--tls-client-role", "grafana=viewer")
	server := strings.Replace(r.grpc, "[::]", "127.0.0.1", 1)
	for _, test := range []struct {
		args, token string
		code        int
		says        string
	}{
		{"runs", "", 1, "no credentials"},
		{"runs", "wrong", 1, "not valid"},
		{"runs", "open sesame", 0, "RUN"},
		{"runs --client-cert " + clientCert + " --client-key " + clientKey, "", 0, "RUN"},
		{
			"run --client-cert " + clientCert + " --client-key " + clientKey,
			"",
			1,
			"CleanupService/RunCleanup needs the role operator",
		},
		{"run --dry-run --client-cert " + clientCert + " --client-key " + clientKey, "", 0, "statistics"},
		{"run --task rejects", "open sesame", 2, "rejects"},
		{"run --task import-rejects", "open sesame", 0, "import-rejects"},
		{"userdata find ann", "open sesame", 1, "UserDataService/FindUserData needs the role admin"},
	} {
		args := append(strings.Fields(test.args), "--server", server, "--tls-ca", ca.File())
		if test.token != "" {
			args = append(args, "--token", test.token)
		}
		if code, out, errs := cleanupd(t, args...); code != test.code || !strings.Contains(out+errs, test.says) {
			t.Errorf("%s with %q: %d %s %s", test.args, test.token, code, out, errs)
		}
	}
	code, out, errs := cleanupd(t, "audit", "--database-url", db.URL())
	if code != 0 || !strings.Contains(out, "token:the-operator  operator  127.0.0.1  CleanupService/RunCleanup") ||
		!strings.Contains(out, "PERMISSION_DENIED") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, out, errs = cleanupd(t, "audit", "--database-url", db.URL(), "--json", "--limit", "2")
	var last struct{ Subject, RPC, Result string }
	if err := json.Unmarshal(
		[]byte(out[:max(strings.Index(out, "\n"), 0)]), &last,
	); err != nil || code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(errs,
		"There may be more") || last.RPC != "UserDataService/FindUserData" ||
		last.Result != "PERMISSION_DENIED" {
		t.Errorf("%d %s %s: %v", code, out, errs, err)
	}
	if log := r.log.wait(
		t.Context(), `msg=audit request_id=\S+ rpc=CleanupService/RunCleanup subject=token:the-operator .*result=OK`,
	)[0]; log == "" ||
		strings.Contains(log, "sesame") {
		t.Errorf("the log says %q", log)
	}
}

// With --insecure a server may serve everyone on any address.
func TestInsecure(t *testing.T) {
	t.Parallel()
	r := startServer(t, "--database-url", pgtest.Campaign(t).URL(), "--grpc-listen", "0.0.0.0:0", "--http-listen",
		"0.0.0.0:0", "--insecure")
	if code, out, errs := cleanupd(t, "runs", "--server", strings.Replace(r.grpc, "[::]", "127.0.0.1", 1)); code != 0 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
