package connection_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A connection starts with the settings of its URL and those that were set after that, and can be reset to them.
func TestSettings(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.Empty(t).URL() + "&lock_timeout=7s&work_mem=8MB&application_name=it")
	if err != nil {
		t.Fatal(err)
	}
	connection.Defer(config)
	connection.Set(config, map[string]string{"work_mem": "9MB"})
	if len(config.RuntimeParams) != 0 {
		t.Errorf("the first message has %v", config.RuntimeParams)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	const settings = "SELECT concat_ws(' ', current_setting('lock_timeout'), current_setting('work_mem'), " +
		"current_setting('application_name'), current_setting('jit'))"
	for range 2 {
		var got string
		if err := conn.QueryRow(t.Context(), settings).Scan(&got); err != nil || got != "7s 9MB it on" {
			t.Errorf("%s: %v", got, err)
		}
		if _, err := conn.Exec(t.Context(), "SET lock_timeout = 0; SET jit = off"); err != nil {
			t.Fatal(err)
		}
		if err := connection.Reset(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
	}
}

// Schemas of the service are left out of the search path, whether it names them or "$user" is one of them.
func TestSchemasAreHidden(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.Empty(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		`"$user", public`: `"$user", public`,
		`cleanupd, "a,b" , "cleanupd_trash",public`: ` "a,b" ,public`,
		`cleanupd`: ``,
	} {
		c := config.Copy()
		connection.Set(c, map[string]string{"search_path": path})
		connection.HideSchemas(c)
		conn, err := pgx.ConnectConfig(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting('search_path')").Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, want %q: %v", path, got, want, err)
		}
		_ = conn.Close(t.Context())
	}
}
