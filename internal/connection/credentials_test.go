package connection_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/testca"
)

// A new connection has the credentials that the files have now.
func TestCredentialsThatChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	ca := testca.New(t)
	rotate := func(password string) (passfile, services, cert, key string) {
		certFile, keyFile := ca.Files(ca.Client(password))
		files := []string{}
		for _, file := range []string{certFile, keyFile} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, write(fmt.Sprint("pair", len(files)), string(text)))
		}
		return write("passwords", "*:*:*:*:"+password), write("services",
			"[it]\nhost=db.example\ndbname=campaign\nuser=of_"+password), files[0], files[1]
	}
	passfile, services, cert, key := rotate("first")
	config, err := pgxpool.ParseConfig("postgres:///?service=it&servicefile=" + services + "&passfile=" + passfile +
		"&sslmode=require&sslcert=" + cert + "&sslkey=" + key)
	if err != nil {
		t.Fatal(err)
	}
	refresh := connection.Refresh(config.ConnString())
	for _, password := range []string{"first", "second"} {
		rotate(password)
		c := config.ConnConfig.Copy()
		if err := refresh(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if name := c.TLSConfig.Certificates[0].Leaf.Subject.CommonName; c.Password != password ||
			c.User != "of_"+password ||
			name != password {
			t.Errorf("%s: the password is %s, the user %s, the certificate that of %s", password, c.Password, c.User,
				name)
		}
	}
	write("services", "[it]\nhost=other.example\ndbname=campaign\nuser=x")
	if err := refresh(t.Context(), config.ConnConfig.Copy()); err == nil ||
		!strings.Contains(err.Error(), "restart cleanupd") {
		t.Errorf("with another server: %v", err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := refresh(t.Context(), config.ConnConfig.Copy()); !errors.Is(err, connection.ErrCredentials) {
		t.Errorf("without a key: %v", err)
	}
}
