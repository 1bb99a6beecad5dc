package main

import (
	"bytes"
	"context"
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
	"github.com/cleanupd/cleanupd/internal/testca"
)

// Each transcript in testdata/script has commands and what they print. Besides testscript's own commands there are:
//
//	database campaign|empty|shop   a new database; its URL is $DB and its name $NAME
//	role NAME                      a role that may log in: $NAME is its name in PostgreSQL, $NAME_URL its URL of $DB
//	sql FILE|STATEMENTS            executes statements as the application's role
//	superuser FILE|STATEMENTS      executes statements as a superuser
//	value QUERY TEXT               compares the rows of a query, with blanks between columns and between rows
//	let NAME QUERY                 sets a variable to them
//	until QUERY                    waits until a query returns a number other than 0
//	hold STATEMENT, release        begins a transaction that holds locks, and ends it
//	certificates [NAME]            makes $CA, of it $CERT and $KEY of a server, and $NAME_CERT and $NAME_KEY of a client
//	serve [FLAGS]                  starts a server, of $DB unless --config is given; $SERVER and $HTTP are its HOST:PORTs
//	shutdown                       ends the server, as SIGTERM does
//	log PATTERN                    waits until the server's log matches
//	get URL                        prints what is there
//	cleanupd ARGS [-> TEXTS]       must succeed and print each text; ! cleanupd must fail with exit status 1
//	answer ANSWER ARGS [-> TEXTS]  cleanupd on a terminal, where the answer is typed to its question
//	mistake ARGS [-> TEXTS]        must fail with one line, which has each text, and exit status 2: a usage error
//	failure ARGS [-> TEXTS]        the same with exit status 1: any other error
//	-> TEXTS                       the last command must have printed each text, too
//	exit STATUS cleanupd ARGS      must end with the exit status
//	keep NAME PATTERN              sets a variable to the part of stdout that is in the pattern's parentheses
//	id NAME                        sets a variable to the first id in stdout
//	ids IDS                        compares the ids in stdout
//	json PATH TEXT                 compares values in stdout, which is JSON; in a list, the path names an element by its
//	                               index, those that have a field as FIELD=VALUE, and all as *
//	lines N                        compares the number of lines of stdout
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
			if neg && name != "cleanupd" && name != "answer" {
				ts.Fatalf("! %s is not a command", name)
			}
			command(ts.Value(script{}).(*script), ts, neg, args)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), Cmds: commands,
		ContinueOnError: true, RequireUniqueNames: true, UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv(asProgram, "1")
			env.Values[script{}] = &script{TB: env.T().(testing.TB)}
			return nil
		},
	})
}

// script is the state of a transcript.
type script struct {
	testing.TB
	db     *pgtest.DB
	server *replica
	held   pgx.Tx
}

var id = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

var scriptCommands = map[string]func(s *script, ts *testscript.TestScript, neg bool, args []string){
	"database": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		s.db = map[string]func(testing.TB) *pgtest.DB{
			"campaign": pgtest.Campaign, "empty": pgtest.Empty, "shop": shop,
		}[args[0]](s)
		ts.Setenv("DB", s.db.URL())
		ts.Setenv("NAME", s.db.Name)
	},
	"role": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		role := s.db.Role(args[0])
		ts.Setenv(args[0], role)
		ts.Setenv(args[0]+"_URL", s.db.As(role))
	},
	"sql": func(s *script, ts *testscript.TestScript, _ bool, args []string) { s.db.Do(statements(ts, args[0])) },
	"superuser": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		s.db.Superuser(statements(ts, args[0]))
	},
	"value": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		if got := s.value(statements(ts, args[0])); got != args[1] {
			ts.Fatalf("it is %q, want %q", got, args[1])
		}
	},
	"let": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		ts.Setenv(args[0], s.value(statements(ts, args[1])))
	},
	"until": func(s *script, ts *testscript.TestScript, _ bool, args []string) { s.db.Until(statements(ts, args[0])) },
	"hold": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		s.held = s.db.Hold(statements(ts, args[0]))
	},
	"release": func(s *script, ts *testscript.TestScript, _ bool, _ []string) { ts.Check(s.held.Rollback(s.Context())) },
	"certificates": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		ca := testca.New(s)
		cert, key := ca.Files(ca.Server())
		ts.Setenv("CA", ca.File())
		ts.Setenv("CERT", cert)
		ts.Setenv("KEY", key)
		for _, name := range args {
			cert, key := ca.Files(ca.Client(name))
			ts.Setenv(name+"_CERT", cert)
			ts.Setenv(name+"_KEY", key)
		}
	},
	"serve": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		if !slices.Contains(args, "--database-url") && !slices.Contains(args, "--config") {
			args = append([]string{"--database-url", s.db.URL()}, args...)
		}
		s.server = startServer(s, args...)
		if s.server.grpc == "" {
			ts.Fatalf("the server does not start: %s", s.server.log)
		}
		ts.Setenv("SERVER", strings.Replace(s.server.grpc, "[::]", "127.0.0.1", 1))
		ts.Setenv("HTTP", strings.TrimPrefix(s.server.http, "http://"))
	},
	"shutdown": func(s *script, ts *testscript.TestScript, _ bool, _ []string) {
		ts.Check(s.server.cmd.Process.Signal(syscall.SIGTERM))
		ts.Check(s.server.cmd.Wait())
	},
	"log": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		found := s.server.log.wait(s.Context(), args[0])[0]
		if found == "" {
			ts.Fatalf("no match for %#q in the log:\n%s", args[0], s.server.log)
		}
		_, _ = fmt.Fprintln(ts.Stdout(), found)
	},
	"get": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		response, err := http.Get(args[0])
		ts.Check(err)
		defer func() { _ = response.Body.Close() }()
		_, err = io.Copy(ts.Stdout(), response.Body)
		ts.Check(err)
	},
	"cleanupd": func(s *script, ts *testscript.TestScript, neg bool, args []string) {
		s.cleanupd(ts, wanted(neg), args)
	},
	"answer": func(s *script, ts *testscript.TestScript, neg bool, args []string) {
		answer := args[0]
		args, texts := cutTexts(args[1:])
		code, shown := onTerminal(s, answer, atFiles(ts, withServer(ts, args))...)
		_, _ = fmt.Fprint(ts.Stdout(), shown)
		check(ts, code, wanted(neg), shown, texts)
	},
	"mistake": func(s *script, ts *testscript.TestScript, _ bool, args []string) { s.fails(ts, exitUsage, args) },
	"failure": func(s *script, ts *testscript.TestScript, _ bool, args []string) { s.fails(ts, 1, args) },
	"exit": func(s *script, ts *testscript.TestScript, _ bool, args []string) {
		want, err := strconv.Atoi(args[0])
		ts.Check(err)
		s.cleanupd(ts, want, args[2:])
	},
	"->": func(_ *script, ts *testscript.TestScript, _ bool, args []string) {
		prints(ts, ts.ReadFile("stdout")+ts.ReadFile("stderr"), args)
	},
	"keep": func(_ *script, ts *testscript.TestScript, _ bool, args []string) { keep(ts, args[0], args[1]) },
	"id": func(_ *script, ts *testscript.TestScript, _ bool, args []string) {
		keep(ts, args[0], "("+id.String()+")")
	},
	"ids": func(_ *script, ts *testscript.TestScript, _ bool, args []string) {
		if got := id.FindAllString(ts.ReadFile("stdout"), -1); !slices.Equal(got, args) {
			ts.Fatalf("the ids are %q, want %q", got, args)
		}
	},
	"json": func(_ *script, ts *testscript.TestScript, _ bool, args []string) {
		var value any
		ts.Check(json.NewDecoder(strings.NewReader(ts.ReadFile("stdout"))).Decode(&value))
		if got := strings.Join(inJSON(value, strings.Split(args[0], ".")), " "); got != args[1] {
			ts.Fatalf("%s is %q, want %q", args[0], got, args[1])
		}
	},
	"lines": func(_ *script, ts *testscript.TestScript, _ bool, args []string) {
		if n := strconv.Itoa(strings.Count(ts.ReadFile("stdout"), "\n")); n != args[0] {
			ts.Fatalf("stdout has %s lines, want %s", n, args[0])
		}
	},
	"mask": func(_ *script, ts *testscript.TestScript, _ bool, _ []string) {
		text := ts.ReadFile("stdout")
		for _, v := range volatile {
			text = v.what.ReplaceAllString(text, v.by)
		}
		_, _ = fmt.Fprint(ts.Stdout(), text)
	},
}

func wanted(neg bool) int {
	if neg {
		return 1
	}
	return 0
}

// cleanupd runs the program and returns what it prints.
func (s *script) cleanupd(ts *testscript.TestScript, want int, args []string) (stdout, stderr string) {
	args, texts := cutTexts(args)
	args = withServer(ts, args)
	code := 0
	if slices.ContainsFunc(variables(), func(name string) bool { return ts.Getenv(name) != "" }) {
		err := ts.Exec("cleanupd", args...)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		stdout, stderr = ts.ReadFile("stdout"), ts.ReadFile("stderr")
	} else {
		var out, errs bytes.Buffer
		code = run(s.Context(), atFiles(ts, args), &out, &errs)
		stdout, stderr = out.String(), errs.String()
		_, _ = fmt.Fprint(ts.Stdout(), stdout)
		_, _ = fmt.Fprint(ts.Stderr(), stderr)
	}
	check(ts, code, want, stdout+stderr, texts)
	return stdout, stderr
}

func (s *script) fails(ts *testscript.TestScript, want int, args []string) {
	if out, errs := s.cleanupd(ts, want, args); out != "" || strings.Count(errs, "\n") != 1 {
		ts.Fatalf("it prints more than one line on stderr")
	}
}

func cutTexts(line []string) (args, texts []string) {
	if at := slices.Index(line, "->"); at >= 0 {
		return line[:at], line[at+1:]
	}
	return line, nil
}

func check(ts *testscript.TestScript, code, want int, printed string, texts []string) {
	if code != want {
		ts.Fatalf("exit status %d, want %d", code, want)
	}
	prints(ts, printed, texts)
	if strings.Contains(printed, planted) {
		ts.Fatalf("it prints a secret")
	}
}

func prints(ts *testscript.TestScript, printed string, texts []string) {
	for _, text := range texts {
		if !strings.Contains(printed, text) {
			ts.Fatalf("it does not print %q", text)
		}
	}
}

// atFiles replaces names of the script's files by their paths, since the program runs in another folder.
func atFiles(ts *testscript.TestScript, args []string) (all []string) {
	for _, arg := range args {
		if _, err := os.Stat(ts.MkAbs(arg)); err == nil && strings.Contains(arg, ".") {
			arg = ts.MkAbs(arg)
		}
		all = append(all, arg)
	}
	return all
}

// withServer adds the server to the arguments of a command that speaks with one.
func withServer(ts *testscript.TestScript, args []string) []string {
	cmd, _, err := newRoot().Find(args)
	named := slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains([]string{"--server", "--database-url", "--context"}, name)
	})
	if server := ts.Getenv("SERVER"); server != "" && !named && err == nil && cmd.Flag("server") != nil {
		return append(slices.Clone(args), "--server", server)
	}
	return args
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
	s.Helper()
	var rows []string
	err := s.db.AcquireFunc(s.Context(), func(conn *pgxpool.Conn) error {
		results, err := conn.Conn().PgConn().Exec(s.Context(), query).ReadAll()
		for _, result := range results {
			for _, row := range result.Rows {
				rows = append(rows, string(bytes.Join(row, []byte(" "))))
			}
		}
		return err
	})
	if err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	return strings.Join(rows, " ")
}

var inBraces = regexp.MustCompile(`\$\{(\w+)\}`)

// statements returns the content of a file, or the argument itself, with the values of variables.
func statements(ts *testscript.TestScript, arg string) string {
	if strings.HasSuffix(arg, ".sql") {
		arg = ts.ReadFile(arg)
	}
	return inBraces.ReplaceAllStringFunc(arg, func(name string) string {
		return ts.Getenv(strings.Trim(name, "${}"))
	})
}

func keep(ts *testscript.TestScript, name, pattern string) {
	found := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("no match for %#q in stdout", pattern)
	}
	ts.Setenv(name, found[1])
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

// shop returns a database without Campaign's tables.
func shop(t testing.TB) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, "shop", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `CREATE TABLE customer (id int PRIMARY KEY, name text);
			CREATE TABLE orders (id int PRIMARY KEY, customer int, status text, note text, placed timestamptz);
			CREATE TABLE line (order_id int REFERENCES orders ON DELETE CASCADE);
			INSERT INTO orders SELECT i, i, 'closed', 'a', now() - i * interval '1 day' FROM generate_series(1, 100) i`)
		return err
	})
}
