package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/internal/testca"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/userdata"
)

// Each transcript in testdata/script has commands and what they print. Besides testscript's own commands there are:
//
//	database KIND                  a new database: campaign, new (the same before its first start), empty, shop or forms;
//	                               $DB is its URL and $NAME its name
//	role NAME                      a role that may log in: $NAME is its name in PostgreSQL, $NAME_URL its URL of $DB
//	sql FILE|STATEMENTS            executes statements as the application's role
//	superuser FILE|STATEMENTS      executes statements as a superuser
//	value FILE|QUERY TEXT          compares the rows of a query, with blanks between columns and between rows
//	let NAME FILE|QUERY            sets a variable to them
//	until QUERY                    waits until a query returns a number other than 0
//	hold STATEMENT, release        begins a transaction that holds locks, and ends it
//	certificates [NAMES]           makes $CA, of it $CERT and $KEY of a server, and $NAME_CERT and $NAME_KEY of a client
//	serve [FLAGS]                  starts a server, of $DB unless --config is given; $SERVER and $HTTP are its HOST:PORTs
//	shutdown                       ends the server, as SIGTERM does
//	log PATTERN                    waits until the server's log matches, and prints the match
//	get URL                        prints what is there
//	cleanupd ARGS [-> TEXTS]       must succeed and print each text; ! cleanupd must fail with exit status 1
//	quiet ARGS [-> TEXTS]          the same as cleanupd, which must print nothing on stderr
//	answer ANSWER ARGS [-> TEXTS]  cleanupd on a terminal, where the answer is typed to its question; it must not ask if
//	                               the answer is empty
//	mistake ARGS [-> TEXTS]        must fail with one line, which has each text, and exit status 2: a usage error
//	failure ARGS [-> TEXTS]        the same with exit status 1: any other error
//	exit STATUS cleanupd ARGS      must end with the exit status, or "any"
//	-> TEXTS                       the last command must have printed each text, too
//	lines N                        compares the number of lines of stdout
//	json PATH TEXT                 compares values in stdout, which is JSON; in a list, the path names an element by its
//	                               index, those that have a field as FIELD=VALUE, and all as *
//	id NAME                        sets a variable to the first id in stdout
//	ids IDS                        compares the ids in stdout
//	keep NAME PATTERN              sets a variable to the part of stdout that is in the pattern's parentheses
//	mask                           replaces what differs from run to run in stdout, before cmp (see volatile)
//
// In SQL ${NAME} is replaced by a variable. With a server, cleanupd has --server $SERVER unless the arguments name a
// server, a database or a context. It runs in this process, unless the script sets variables for it.
// No command may print PLANTED, which is part of every secret.
// go test -run TestScripts -update writes files of transcripts with which cmp compares.
func TestScripts(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(program, filepath.Join(bin, "cleanupd")); err != nil {
		t.Fatal(err)
	}
	commands := map[string]func(ts *testscript.TestScript, neg bool, args []string){}
	for name, command := range scriptCommands {
		commands[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if len(args) < command.least || neg && name != "cleanupd" && name != "answer" {
				ts.Fatalf("%s needs %d arguments, and no ! before it", name, command.least)
			}
			s := ts.Value("script").(*script)
			s.TestScript, s.want = ts, 0
			if neg {
				s.want = 1
			}
			command.run(s, args)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), Cmds: commands,
		ContinueOnError: true, RequireUniqueNames: true, UpdateScripts: *update,
		Condition: func(name string) (bool, error) { // [!long] stop
			if name != string(suite.Long) {
				return false, errors.New("the only condition is long")
			}
			return suite.Long.Requested(), nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv(asProgram, "1")
			env.Values["script"] = &script{t: env.T().(testing.TB)}
			return nil
		},
	})
}

const anyStatus = -1

type script struct {
	*testscript.TestScript
	t      testing.TB
	want   int // the exit status
	db     *pgtest.DB
	server *replica
	held   pgx.Tx
}

var uuid7 = regexp.MustCompile(`([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})`)

var scriptCommands = map[string]struct {
	least int // arguments
	run   func(s *script, args []string)
}{
	"database":     {1, (*script).database},
	"role":         {1, (*script).role},
	"sql":          {1, func(s *script, args []string) { s.db.Do(s.statements(args[0])) }},
	"superuser":    {1, func(s *script, args []string) { s.db.Superuser(s.statements(args[0])) }},
	"value":        {2, func(s *script, args []string) { s.same("it", s.value(args[0]), args[1]) }},
	"let":          {2, func(s *script, args []string) { s.Setenv(args[0], s.value(args[1])) }},
	"until":        {1, func(s *script, args []string) { s.db.Until(s.statements(args[0])) }},
	"hold":         {1, func(s *script, args []string) { s.held = s.db.Hold(s.statements(args[0])) }},
	"release":      {0, func(s *script, _ []string) { s.Check(s.held.Rollback(s.t.Context())) }},
	"certificates": {0, (*script).certificates},
	"serve":        {0, (*script).serve},
	"shutdown":     {0, (*script).shutdown},
	"log":          {1, (*script).log},
	"get":          {1, (*script).get},
	"cleanupd":     {0, func(s *script, args []string) { s.cleanupd(s.want, args) }},
	"quiet": {0, func(s *script, args []string) {
		if _, errs := s.cleanupd(0, args); errs != "" {
			s.Fatalf("it prints something on stderr")
		}
	}},
	"answer":  {1, (*script).answer},
	"mistake": {0, func(s *script, args []string) { s.fails(exitUsage, args) }},
	"failure": {0, func(s *script, args []string) { s.fails(1, args) }},
	"exit":    {2, (*script).exit},
	"->":      {1, func(s *script, args []string) { s.printed(s.ReadFile("stdout")+s.ReadFile("stderr"), args) }},
	"lines": {1, func(s *script, args []string) {
		s.same("the number of lines", strconv.Itoa(strings.Count(s.ReadFile("stdout"), "\n")), args[0])
	}},
	"json": {2, (*script).json},
	"id":   {1, func(s *script, args []string) { s.keep(args[0], uuid7) }},
	"ids": {0, func(s *script, args []string) {
		s.same("the ids", strings.Join(uuid7.FindAllString(s.ReadFile("stdout"), -1), " "), strings.Join(args, " "))
	}},
	"keep": {2, func(s *script, args []string) { s.keep(args[0], regexp.MustCompile("(?m)"+args[1])) }},
	"mask": {0, func(s *script, _ []string) { s.print(withoutVolatile(s.ReadFile("stdout")), "") }},
}

func (s *script) same(what, got, want string) {
	if got != want {
		s.Fatalf("%s is %q, want %q", what, got, want)
	}
}

func (s *script) print(stdout, stderr string) {
	_, _ = io.WriteString(s.Stdout(), stdout)
	_, _ = io.WriteString(s.Stderr(), stderr)
}

func (s *script) database(args []string) {
	s.db = map[string]func() *pgtest.DB{
		"campaign": func() *pgtest.DB { return campaign(s.t) },
		"new":      func() *pgtest.DB { return pgtest.Campaign(s.t) },
		"empty":    func() *pgtest.DB { return pgtest.Empty(s.t) },
		"shop":     func() *pgtest.DB { return shop(s.t) },
		"forms":    func() *pgtest.DB { return formsOf(s.t, 5, "") },
	}[args[0]]()
	s.Setenv("DB", s.db.URL())
	s.Setenv("NAME", s.db.Name)
}

func (s *script) role(args []string) {
	role := s.db.Role(args[0])
	s.Setenv(args[0], role)
	s.Setenv(args[0]+"_URL", s.db.As(role))
}

func (s *script) certificates(names []string) {
	ca := testca.New(s.t)
	set := func(prefix string, pair tls.Certificate) {
		cert, key := ca.Files(pair)
		s.Setenv(prefix+"CERT", cert)
		s.Setenv(prefix+"KEY", key)
	}
	s.Setenv("CA", ca.File())
	set("", ca.Server())
	for _, name := range names {
		set(name+"_", ca.Client(name))
	}
}

func (s *script) serve(flags []string) {
	if !slices.Contains(flags, "--database-url") && !slices.Contains(flags, "--config") {
		flags = append([]string{"--database-url", s.db.URL()}, flags...)
	}
	s.server = startServer(s.t, flags...)
	if s.server.grpc == "" {
		s.Fatalf("the server does not start: %s", s.server.log)
	}
	s.Setenv("SERVER", strings.Replace(s.server.grpc, "[::]", "127.0.0.1", 1))
	s.Setenv("HTTP", strings.TrimPrefix(s.server.http, "http://"))
}

func (s *script) shutdown([]string) {
	s.Check(s.server.cmd.Process.Signal(syscall.SIGTERM))
	s.Check(s.server.cmd.Wait())
}

func (s *script) log(args []string) {
	found := s.server.log.wait(s.t.Context(), args[0])[0]
	if found == "" {
		s.Fatalf("no match for %#q in the log:\n%s", args[0], s.server.log)
	}
	s.print(found+"\n", "")
}

func (s *script) get(args []string) {
	response, err := http.Get(args[0])
	s.Check(err)
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(s.Stdout(), response.Body)
	s.Check(err)
}

func (s *script) exit(args []string) {
	want, err := strconv.Atoi(args[0])
	if args[0] == "any" {
		want, err = anyStatus, nil
	}
	s.Check(err)
	s.cleanupd(want, args[2:])
}

func (s *script) fails(want int, args []string) {
	if out, errs := s.cleanupd(want, args); out != "" || strings.Count(errs, "\n") != 1 {
		s.Fatalf("it prints something else than one line on stderr")
	}
}

func (s *script) answer(args []string) {
	command, texts := s.command(args[1:])
	code, shown := onTerminal(s.t, args[0], s.atFiles(command)...)
	s.print(shown, "")
	if args[0] == "" && strings.Contains(shown, "[y/N]") {
		s.Fatalf("it asks")
	}
	s.ended(code, s.want, shown, texts)
}

// cleanupd runs the program and returns what it prints.
func (s *script) cleanupd(want int, args []string) (stdout, stderr string) {
	command, texts := s.command(args)
	code := 0
	if slices.ContainsFunc(variables(), func(name string) bool { return s.Getenv(name) != "" }) {
		err := s.Exec("cleanupd", command...)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else {
			s.Check(err)
		}
		stdout, stderr = s.ReadFile("stdout"), s.ReadFile("stderr")
	} else {
		var out, errs bytes.Buffer
		code = run(s.t.Context(), s.atFiles(command), &out, &errs)
		stdout, stderr = out.String(), errs.String()
		s.print(stdout, stderr)
	}
	s.ended(code, want, stdout+stderr, texts)
	return stdout, stderr
}

func (s *script) ended(code, want int, printed string, texts []string) {
	if code != want && want != anyStatus {
		s.Fatalf("exit status %d, want %d", code, want)
	}
	if strings.Contains(printed, planted) {
		s.Fatalf("it prints a secret")
	}
	s.printed(printed, texts)
}

func (s *script) printed(all string, texts []string) {
	for _, text := range texts {
		if !strings.Contains(all, text) {
			s.Fatalf("it does not print %q", text)
		}
	}
}

// command returns what is before and after -> in a line, and adds the server to a command that speaks with one.
func (s *script) command(line []string) (args, texts []string) {
	if at := slices.Index(line, "->"); at >= 0 {
		line, texts = line[:at:at], line[at+1:]
	}
	cmd, _, err := newRoot().Find(line)
	named := slices.ContainsFunc(line, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains([]string{"--server", "--database-url", "--context"}, name)
	})
	if server := s.Getenv("SERVER"); server != "" && !named && err == nil && cmd.Flag("server") != nil {
		line = append(line, "--server", server)
	}
	return line, texts
}

// atFiles replaces names of the script's files by their paths, since the program runs in another folder.
func (s *script) atFiles(args []string) (all []string) {
	for _, arg := range args {
		if _, err := os.Stat(s.MkAbs(arg)); err == nil && strings.Contains(arg, ".") {
			arg = s.MkAbs(arg)
		}
		all = append(all, arg)
	}
	return all
}

// variables returns the names of those that the program reads.
var variables = sync.OnceValue(func() []string {
	names := []string{"XDG_CONFIG_HOME"}
	commands(newRoot(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			names = append(names, "CLEANUPD_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
		})
	})
	return names
})

// value returns the rows of a query.
func (s *script) value(query string) string {
	var rows []string
	s.Check(s.db.AcquireFunc(s.t.Context(), func(conn *pgxpool.Conn) error {
		results, err := conn.Conn().PgConn().Exec(s.t.Context(), s.statements(query)).ReadAll()
		for _, result := range results {
			for _, row := range result.Rows {
				rows = append(rows, string(bytes.Join(row, []byte(" "))))
			}
		}
		return err
	}))
	return strings.Join(rows, " ")
}

var inBraces = regexp.MustCompile(`\$\{(\w+)\}`)

// statements returns the content of a file, or the argument itself, with the values of variables.
func (s *script) statements(arg string) string {
	if strings.HasSuffix(arg, ".sql") {
		arg = s.ReadFile(arg)
	}
	return inBraces.ReplaceAllStringFunc(arg, func(name string) string { return s.Getenv(strings.Trim(name, "${}")) })
}

func (s *script) keep(name string, pattern *regexp.Regexp) {
	found := pattern.FindStringSubmatch(s.ReadFile("stdout"))
	if found == nil {
		s.Fatalf("no match for %#q in stdout", pattern)
	}
	s.Setenv(name, found[1])
}

func (s *script) json(args []string) {
	var value any
	s.Check(json.NewDecoder(strings.NewReader(s.ReadFile("stdout"))).Decode(&value))
	s.same(args[0], strings.Join(inJSON(value, strings.Split(args[0], ".")), " "), args[1])
}

// inJSON returns the values at a path, as text.
func inJSON(value any, path []string) (texts []string) {
	switch v := value.(type) {
	case map[string]any:
		if len(path) > 0 {
			return inJSON(v[path[0]], path[1:])
		}
	case []any:
		for i, element := range v {
			if len(path) > 0 && (path[0] == "*" || path[0] == strconv.Itoa(i) || has(element, path[0])) {
				texts = append(texts, inJSON(element, path[1:])...)
			}
		}
		return texts
	}
	return []string{fmt.Sprint(value)}
}

// has reports whether an object has a field and value, as in "name=value".
func has(object any, field string) bool {
	name, value, _ := strings.Cut(field, "=")
	fields, _ := object.(map[string]any)
	return fields[name] == any(value)
}

// shop returns a database without Campaign's tables, but with those of the service.
func shop(t testing.TB) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, "shop", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `CREATE TABLE customer (id int PRIMARY KEY, name text);
			CREATE TABLE orders (id int PRIMARY KEY, customer int, status text, note text, placed timestamptz);
			CREATE TABLE line (order_id int REFERENCES orders ON DELETE CASCADE);
			INSERT INTO orders SELECT i, i, 'closed', 'a', now() - i * interval '1 day' FROM generate_series(1, 100) i`)
		return errors.Join(err, store.Migrate(ctx, conn), userdata.Migrate(ctx, conn))
	})
}
