// Package pgtest gives tests databases of a real PostgreSQL: one server per package, one database per test.
package pgtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/localpg"
)

var (
	// the process id, since packages may share a server
	emptyTemplate = fmt.Sprintf("template_empty_%d", os.Getpid())

	address func(role, database string) string // returns a URL of the package's server
	// the superuser's pool to its database postgres, since a connection costs more than most statements
	admin    *pgxpool.Pool
	strategy string // how its databases are cloned
	whySkip  string // why no server is available
	sequence atomic.Int64
)

// Main is a package's TestMain. It starts a server (or uses that of TEST_DATABASE_URL, as a superuser), creates the
// templates, runs the tests and checks for leaked goroutines. If there is no PostgreSQL, the tests are skipped with
// the reason; in CI they fail. stops are called at the end, to stop other things that the tests have started.
func Main(m *testing.M, stops ...func()) {
	os.Exit(run(m, stops...))
}

func run(m *testing.M, stops ...func()) int {
	ctx := context.Background()
	if err := runMoreAtOnce(); err != nil {
		fmt.Fprintln(os.Stderr, "set -parallel:", err)
		return 1
	}
	removeTemp, err := useTempDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a temporary folder:", err)
		return 1
	}
	defer removeTemp()
	stop := func() {}
	if given := os.Getenv("TEST_DATABASE_URL"); given != "" {
		address = func(role, database string) string { return rewrite(given, role, database) }
	} else {
		server, err := localpg.Start(ctx)
		switch {
		case errors.Is(err, localpg.ErrNoPostgres) && os.Getenv("CI") == "":
			whySkip = err.Error()
			return m.Run()
		case err != nil:
			fmt.Fprintln(os.Stderr, "start PostgreSQL:", err)
			return 1
		}
		address, stop = server.URL, server.Stop
	}
	code := 1
	if admin, err = pgxpool.New(ctx, address("postgres", "postgres")); err != nil {
		fmt.Fprintln(os.Stderr, "connect as the superuser:", err)
	} else {
		code = runOn(ctx, m)
		admin.Close()
	}
	stopCitus()
	stop()
	for _, other := range stops {
		other()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// runMoreAtOnce sets -parallel, unless it is given: tests wait for their servers half of the time.
func runMoreAtOnce() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
}

func runOn(ctx context.Context, m *testing.M) (code int) {
	defer func() {
		if err := dropTemplates(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "drop the templates:", err)
		}
	}()
	// Copying the files takes half as long as writing them to the WAL, which is the default since PostgreSQL 15.
	if err := admin.QueryRow(ctx, "SELECT CASE WHEN current_setting('server_version_num')::int >= 150000 THEN "+
		"'STRATEGY file_copy' ELSE '' END").
		Scan(&strategy); err != nil {
		fmt.Fprintln(os.Stderr, "read the server's version:", err)
		return 1
	}
	if err := makeTemplate(ctx, address, emptyTemplate, ""); err != nil {
		fmt.Fprintln(os.Stderr, "make the template:", err)
		return 1
	}
	return m.Run()
}

func rewrite(given, role, database string) string {
	u, err := url.Parse(given)
	if err != nil {
		panic(err)
	}
	if role != "postgres" {
		u.User = url.User(role)
	}
	u.Path = "/" + database
	return u.String()
}

func makeTemplate(ctx context.Context, address func(role, database string) string, name, schema string) error {
	conn, err := campaigndb.Create(ctx, address, name, schema)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// dropTemplates drops the templates, since a server that the tests did not start must be left as it was.
func dropTemplates(ctx context.Context) error {
	names := []string{emptyTemplate}
	for _, t := range prepared {
		names = append(names, t.name)
	}
	for _, name := range names {
		if _, err := admin.Exec(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
			return err
		}
	}
	return nil
}

type DB struct {
	*pgxpool.Pool
	t       testing.TB
	Name    string
	address func(role, database string) string
}

// Campaign returns a database with empty Campaign tables. Its pool connects as the application's role.
func Campaign(t testing.TB) *DB {
	t.Helper()
	return Prepared(t, "campaign", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, campaigndb.Schema)
		return err
	})
}

func Empty(t testing.TB) *DB { return clone(t, emptyTemplate) }

func clone(t testing.TB, template string) *DB {
	t.Helper()
	return create(t, "TEMPLATE "+template+" "+strategy)
}

// create creates a database. clauses are appended to CREATE DATABASE.
func create(t testing.TB, clauses string) *DB {
	t.Helper()
	if whySkip != "" {
		t.Skip(whySkip)
	}
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), sequence.Add(1))
	execute := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	execute(fmt.Sprintf("CREATE DATABASE %s %s OWNER %s", name, clauses, campaigndb.Role))
	t.Cleanup(func() { execute("DROP DATABASE " + name + " WITH (FORCE)") })
	db := &DB{t: t, Name: name, address: address}
	db.open(db.URL())
	return db
}

// Private returns a database with the Campaign tables on a separate server, which may be restarted. Commits there
// survive a crash of the server.
func Private(t testing.TB) (*DB, *localpg.Server) {
	t.Helper()
	if whySkip != "" {
		t.Skip(whySkip)
	}
	server, err := localpg.Start(t.Context(), "synchronous_commit=on", "shared_buffers=16MB", "max_wal_size=128MB")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	db := &DB{t: t, Name: "campaign", address: server.URL}
	if err := makeTemplate(t.Context(), server.URL, db.Name, campaigndb.Schema); err != nil {
		t.Fatal(err)
	}
	db.open(db.URL())
	return db, server
}

// PrivateWithStandby is Private with an asynchronous standby.
func PrivateWithStandby(t testing.TB) (db *DB, primary, standby *localpg.Server) {
	t.Helper()
	db, primary = Private(t)
	standby, err := primary.AsynchronousStandby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	db.Reset() // the primary has been restarted
	return db, primary, standby
}

// MoveTo continues with the same database on another server, such as a standby that was promoted.
func (db *DB) MoveTo(server *localpg.Server) {
	db.t.Helper()
	db.address = server.URL
	db.open(db.URL())
}

func (db *DB) open(url string) {
	db.t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		db.t.Fatal(err)
	}
	config.PrepareConn = connection.Zone
	withoutJIT(config)
	pool, err := pgxpool.NewWithConfig(db.t.Context(), config)
	if err != nil {
		db.t.Fatal(err)
	}
	db.Pool = pool
	db.t.Cleanup(pool.Close)
}

// withoutJIT turns JIT off as the program does for its connections, so that RESET turns it on: compiling a query takes
// longer than executing most of them.
func withoutJIT(config *pgxpool.Config) {
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET jit = off")
		return err
	}
}

// URL returns the URL for the application's role.
func (db *DB) URL() string { return db.address(campaigndb.Role, db.Name) }

func (db *DB) As(role string) string { return db.address(role, db.Name) }

func (db *DB) For(role string) *DB {
	db.t.Helper()
	other := *db
	other.open(other.As(role))
	return &other
}

// Role creates a role that may log in and nothing else.
func (db *DB) Role(name string) string {
	db.t.Helper()
	role := db.Name + "_" + name
	db.Superuser("CREATE ROLE " + role + " LOGIN; REVOKE CREATE ON DATABASE " + db.Name + " FROM public")
	db.t.Cleanup(func() { db.Superuser("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	return role
}

// Do runs as the application's role. Without arguments, sql may be several statements.
func (db *DB) Do(sql string, args ...any) {
	db.t.Helper()
	if _, err := db.Exec(db.t.Context(), sql, args...); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
}

// DoCounted is like Do, but also makes the server's statistics count the change at once. PostgreSQL 14 cannot do so on
// request: it counts half a second later, when the session executes something else, such as the question of Until.
func (db *DB) DoCounted(sql string) {
	db.t.Helper()
	if db.Int("SELECT current_setting('server_version_num')::int") >= 150_000 {
		sql += "; SELECT pg_stat_force_next_flush()"
	}
	db.Do(sql)
}

// Hold runs a statement in a separate transaction, which stays open, with its locks, until the caller or the test
// ends it.
func (db *DB) Hold(sql string, args ...any) pgx.Tx {
	db.t.Helper()
	tx, err := db.Begin(db.t.Context())
	if err != nil {
		db.t.Fatal(err)
	}
	db.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(db.t.Context(), sql, args...); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
	return tx
}

func (db *DB) Superuser(sql string) {
	db.t.Helper()
	db.superuser(db.Name, sql)
}

// Cut terminates all connections, and refuses new ones.
func (db *DB) Cut() {
	db.t.Helper()
	db.superuser("postgres", "ALTER DATABASE "+db.Name+" ALLOW_CONNECTIONS false")
	db.superuser("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+db.Name+"'")
}

func (db *DB) superuser(database, sql string) {
	db.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, db.address("postgres", database))
	if err != nil {
		db.t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
}

func (db *DB) Strings(sql string, args ...any) []string {
	db.t.Helper()
	rows, err := db.Query(db.t.Context(), sql, args...)
	if err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
	return list
}

func (db *DB) Int(sql string, args ...any) (n int64) {
	db.t.Helper()
	if err := db.QueryRow(db.t.Context(), sql, args...).Scan(&n); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Until waits at most two minutes for the question to return a number other than 0.
func (db *DB) Until(question string, args ...any) {
	db.t.Helper()
	pause := time.Millisecond
	for end := time.Now().Add(2 * time.Minute); db.Int(question, args...) == 0; time.Sleep(pause) {
		if time.Now().After(end) {
			db.t.Fatalf("never: %s %v", question, args)
		}
		pause = min(2*pause, 30*time.Millisecond)
	}
}

// Encoded returns a database with empty Campaign tables. encoding is PostgreSQL's name.
func Encoded(t testing.TB, encoding string) *DB {
	t.Helper()
	db := create(t, "TEMPLATE template0 ENCODING '"+encoding+"' LOCALE 'C'")
	db.Do(campaigndb.Schema)
	return db
}
