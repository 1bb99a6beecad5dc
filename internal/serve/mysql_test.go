package serve

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// The error about the URL of a MySQL database never shows its password.
func TestMySQLURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"mysql://forms:PLANTED@db.example/forms":                     "",
		"mysql://forms:PLANTED@db.example:3307/forms?tls=true":       "",
		"mysql://forms:PLANTED@[2001:db8::1]/forms?tls=skip-verify":  "",
		"mysql://forms@/forms?socket=/run/mysqld/mysqld.sock":        "",
		"mysql://forms:PLANTED@db.example":                           "mysql://USER@HOST/DATABASE",
		"mysql://forms:PLANTED@db.example/a/b":                       "mysql://USER@HOST/DATABASE",
		"mysql://db.example/forms":                                   "mysql://USER@HOST/DATABASE",
		"mysql://forms:PLANTED@/forms":                               "mysql://USER@HOST/DATABASE",
		"mysql://forms:PLA/NTED@db.example/forms":                    "percent-encode",
		"mysql://forms:PLANTED@db.example:x/forms":                   "percent-encode",
		"mysql://forms:PLANTED@db.example/forms?tls=yes":             "tls must be true, false, preferred or skip-verify",
		"mysql://forms:PLANTED@db.example/forms?sslmode=require":     `unknown parameter "sslmode"`,
		"mysql://forms:PLANTED@db.example/forms?ssl-ca=x&tls=false":  "ssl-ca needs tls=true",
		"mysql://forms@db.example/forms?password-file=/nowhere":      "the password file",
		"mysql://forms:PLANTED@db.example/forms?ssl-ca=/nowhere.pem": "ssl-ca",
		"mysqls://forms:PLANTED@db.example/forms":                    "mysql://USER@HOST/DATABASE",
	} {
		setup, err := (&FormsConfig{DatabaseURL: url}).check()
		switch {
		case want == "" && (err != nil || setup.mysql == nil):
			t.Errorf("%s: %v", url, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(),
			"NTED")):
			t.Errorf("%s: %v", url, err)
		}
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if setup, err := (&FormsConfig{DatabaseURL: "mysql://forms@db.example/forms?password-file=" +
		file}).check(); err != nil ||
		setup.mysql.Passwd != "from a file" {
		t.Errorf("%+v %v", setup, err)
	}
	setup, err := (&FormsConfig{DatabaseURL: "mysql://forms:s%2Fcret@db.example/forms?tls=true"}).check()
	if err != nil || setup.mysql.Passwd != "s/cret" || setup.mysql.Addr != "db.example:3306" ||
		setup.mysql.DBName != "forms" ||
		setup.mysql.TLSConfig != "true" {
		t.Errorf("%+v %v", setup, err)
	}
}

// The password file of a MySQL database is read for each new connection.
func TestPasswordFileOfMySQLThatChanges(t *testing.T) {
	t.Parallel()
	db := mysqltest.Empty(t, "utf8mb4")
	user := db.Name + "_rotated"
	db.Super("CREATE USER '" + user + "'@'localhost' IDENTIFIED BY 'first'")
	t.Cleanup(func() { db.Super("DROP USER '" + user + "'@'localhost'") })
	db.Super("GRANT SELECT ON " + db.Name + ".* TO '" + user + "'@'localhost'")
	file := filepath.Join(t.TempDir(), "password")
	var pool *sql.DB
	for _, password := range []string{"first", "second"} {
		db.Super("ALTER USER '" + user + "'@'localhost' IDENTIFIED BY '" + password + "'")
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if pool == nil {
			config, err := parseMySQLURL("--forms-database-url", db.URL(user)+"&password-file="+file)
			if err != nil {
				t.Fatal(err)
			}
			connector, err := mysql.NewConnector(config)
			if err != nil {
				t.Fatal(err)
			}
			pool = sql.OpenDB(connector)
			pool.SetMaxIdleConns(-1)
			defer func() { _ = pool.Close() }()
		}
		if err := pool.PingContext(t.Context()); err != nil {
			t.Errorf("with the password %s: %v", password, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := pool.PingContext(t.Context()); !sqlstate.Lost(err) {
		t.Errorf("without the password file: %v, want a lost connection", err)
	}
}
