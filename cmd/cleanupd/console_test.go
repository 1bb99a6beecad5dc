package main

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

var (
	consoleTests = flag.String("console", "", "which tests of web/test to run: a pattern of their names; empty: all")
	pictures     = flag.String("pictures", "", "where to put the documents' pictures of the console; empty: nowhere")
)

// The tests of web/test use this program in Chromium, each on copies of the databases that are made here.
func TestConsole(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("the console is tested in Chromium: %v", err)
	}
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	fill := func(db *pgtest.DB, with func(conn *pgx.Conn) error) *pgtest.DB {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), db.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		if err := with(conn); err != nil {
			t.Fatal(err)
		}
		return db
	}
	forms := pgtest.Empty(t)
	forms.Do(formsdb.Schema)
	empty := pgtest.Empty(t)
	environment := append(os.Environ(), asProgram+"=1", "CLEANUPD="+program, "CHROMIUM="+browser, "PICTURES="+*pictures,
		"SUPERUSER_URL="+empty.As("postgres"), "OWNER="+campaigndb.Role,
		"OWNER_URL="+strings.Replace(empty.URL(), empty.Name, "DATABASE", 1))
	for name, template := range map[string]*pgtest.DB{
		"EMPTY":    pgtest.Empty(t),
		"CAMPAIGN": pgtest.Campaign(t),
		"FILLED": fill(pgtest.Campaign(t), func(conn *pgx.Conn) error {
			return campaigndb.Fill(t.Context(), conn, 50_000, 1, time.Now())
		}),
		"FORMS": fill(forms, func(conn *pgx.Conn) error {
			return formsdb.Generate(rand.New(rand.NewPCG(1, 0)), 40, false).Load(t.Context(), conn, "")
		}),
	} {
		template.Close() // a database that is copied has no sessions
		environment = append(environment, "TEMPLATE_"+name+"="+template.Name)
	}
	tests := exec.CommandContext(t.Context(), "npx", "--no", "--", "playwright", "test", "--grep", *consoleTests)
	tests.Dir, tests.Env = filepath.Join("..", "..", "web"), environment
	tests.Stdout, tests.Stderr = t.Output(), t.Output()
	if err := tests.Run(); err != nil {
		t.Errorf("%v: %v (npm --prefix web ci installs what it needs)", tests.Args, err)
	}
}
