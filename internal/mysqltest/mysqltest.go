// Package mysqltest provides tests with databases in MariaDB: one server per package, one database per test.
package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/cleanupd/cleanupd/internal/localmysql"
)

var (
	start    = sync.OnceValues(func() (*localmysql.Server, error) { return localmysql.Start(context.Background()) })
	started  atomic.Pointer[localmysql.Server]
	sequence atomic.Int64
)

func Stop() {
	if s := started.Load(); s != nil {
		s.Stop()
	}
}

type DB struct {
	*sql.DB
	t      testing.TB
	Name   string
	server *localmysql.Server
}

// Empty returns a database without tables, whose connections are root's. If there is no MariaDB, the test is
// skipped; in CI it fails.
func Empty(t testing.TB, charset string) *DB {
	t.Helper()
	server, err := start()
	if errors.Is(err, localmysql.ErrNoServer) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	started.Store(server)
	return On(t, server, charset)
}

func On(t testing.TB, server *localmysql.Server, charset string) *DB {
	t.Helper()
	db := &DB{t: t, Name: fmt.Sprintf("test_%d", sequence.Add(1)), server: server}
	db.Super("CREATE DATABASE " + db.Name + " CHARACTER SET " + charset)
	t.Cleanup(func() { db.Super("SET STATEMENT lock_wait_timeout = 60 FOR DROP DATABASE " + db.Name) })
	db.DB = db.open(db.Config("root"))
	return db
}

func (db *DB) open(config *mysql.Config) *sql.DB {
	db.t.Helper()
	config.MultiStatements = true
	config.Params = map[string]string{"sql_mode": "'ANSI,TRADITIONAL'", "autocommit": "1"}
	pool, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		db.t.Fatal(err)
	}
	db.t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func (db *DB) Config(user string) *mysql.Config { return db.server.Config(user, db.Name) }

func (db *DB) URL(user string) string { return db.server.URL(user, db.Name) }

// Super runs a statement as root, even after the end of the test.
func (db *DB) Super(statement string) {
	db.t.Helper()
	pool, err := sql.Open("mysql", db.server.Config("root", "").FormatDSN())
	if err != nil {
		db.t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	if _, err := pool.Exec(statement); err != nil {
		db.t.Fatalf("%s: %v", statement, err)
	}
}

// Do takes one statement with arguments, or several statements without arguments.
func (db *DB) Do(statement string, args ...any) {
	db.t.Helper()
	if _, err := db.ExecContext(db.t.Context(), statement, args...); err != nil {
		db.t.Fatalf("%s: %v", statement, err)
	}
}

func (db *DB) Int(query string, args ...any) (n int64) {
	db.t.Helper()
	if err := db.QueryRowContext(db.t.Context(), query, args...).Scan(&n); err != nil {
		db.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (db *DB) Strings(query string, args ...any) (list []string) {
	db.t.Helper()
	rows, err := db.QueryContext(db.t.Context(), query, args...)
	if err != nil {
		db.t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			db.t.Fatalf("%s: %v", query, err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		db.t.Fatalf("%s: %v", query, err)
	}
	return list
}
