package message_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/storedtest"
)

func TestStored(t *testing.T) { storedtest.Check[message.Message](t, "message") }

// Every kind has a unique code and a text, and a cause and a remedy that are sentences.
func TestCatalog(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[A-Z]+(_[A-Z]+)+$`)
	seen := map[string]bool{}
	for _, k := range message.Catalog() {
		if !form.MatchString(k.Code) || seen[k.Code] {
			t.Errorf("the code %q has another form, or is there twice", k.Code)
		}
		seen[k.Code] = true
		if k.Template == "" || strings.HasSuffix(k.Template, ".") {
			t.Errorf("%s has the text %q", k.Code, k.Template)
		}
		for _, text := range []string{k.Cause, k.Remedy} {
			if len(text) < len("Nothing.") || (!strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "`")) {
				t.Errorf("%s has the cause %q and the remedy %q", k.Code, k.Cause, k.Remedy)
			}
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	one, two := message.RowsLocked.With("table", "t", "rows", 1), message.RowsLocked.With("table", "t", "rows", 2000)
	if want := "t: 1 obsolete row was locked by other sessions and is left for the next run"; one.Text != want {
		t.Errorf("got %q, want %q", one.Text, want)
	}
	if want := "t: 2,000 obsolete rows were locked by other sessions and are left for the next run"; two.Text != want {
		t.Errorf("got %q, want %q", two.Text, want)
	}
	there := two.OnServer("far")
	if want := `mid-sourcing server "far": ` + two.Text; there.Text != want || there.Params["server"] != "far" {
		t.Errorf("got %+v, want the text %q", there, want)
	}
	if _, changed := two.Params["server"]; changed {
		t.Error("the original message has the server, too")
	}
	refused := message.SizesUnknown.With("error", &pgconn.PgError{Message: "no", Hint: "ask"})
	if !strings.Contains(refused.Text, "hint: ask") {
		t.Errorf("got %q, want the hint of the server", refused.Text)
	}
	if got, want := message.Join([]message.Message{message.Infof("a"), message.Infof("b")}), "a; b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each use of a kind gives exactly the parameters of its text, and each kind is used.
func TestUses(t *testing.T) {
	t.Parallel()
	kinds, used := kindsByName(t), map[string]bool{}
	for _, path := range sources(t, "../..") {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := kindOf(call)
			if name == "" {
				return true
			}
			used[name] = true
			k := kinds[name]
			if got, want := parameters(call), message.Placeholders(k.Template); !slices.Equal(got, want) {
				t.Errorf("%s: %s has %q, want %q", files.Position(call.Pos()), k.Code, got, want)
			}
			return true
		})
	}
	for name := range kinds {
		if !used[name] {
			t.Errorf("%s is not used", name)
		}
	}
}

func sources(t *testing.T, root string) (paths []string) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err == nil && d.IsDir() && d.Name() == "node_modules":
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			paths = append(paths, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return paths
}

// By the names of their variables, which are declared in the order of the catalogue.
func kindsByName(t *testing.T) map[string]*message.Kind {
	t.Helper()
	byCode, kinds := map[string]*message.Kind{}, map[string]*message.Kind{}
	for _, k := range message.Catalog() {
		byCode[k.Code] = k
	}
	for _, path := range sources(t, ".") {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if call, ok := spec.Values[0].(*ast.CallExpr); ok && len(call.Args) == 4 {
				kinds[spec.Names[0].Name] = byCode[text(call.Args[0])]
			}
			return true
		})
	}
	if len(kinds) != len(byCode) {
		t.Fatalf("%d variables of %d kinds were found", len(kinds), len(byCode))
	}
	return kinds
}

// In a call of message.Kind.With; "" for other calls.
func kindOf(call *ast.CallExpr) string {
	with, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || with.Sel.Name != "With" {
		return ""
	}
	kind, ok := with.X.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if pkg, ok := kind.X.(*ast.Ident); !ok || pkg.Name != "message" {
		return ""
	}
	return kind.Sel.Name
}

// Sorted; "?" for one that is not a literal or has no value.
func parameters(call *ast.CallExpr) (names []string) {
	for i := 0; i < len(call.Args); i += 2 {
		name := text(call.Args[i])
		if i+1 == len(call.Args) {
			name = "?"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// "?" if it is not a string literal.
func text(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok {
		if value, err := strconv.Unquote(literal.Value); err == nil {
			return value
		}
	}
	return "?"
}
