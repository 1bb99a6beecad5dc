package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/cleanupd/cleanupd/gen/cleanup/v1" // registers the API
	"github.com/cleanupd/cleanupd/tasks"
)

var (
	testName = regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w*\b`)
	declared = regexp.MustCompile(`(?m)^func (\w+)\(`)
	filePath = regexp.MustCompile("`((?:cmd|deploy|docs|examples|internal|proto|service|tasks|tools|userdata|" +
		"web|bench|gen|\\.ci)(?:/[\\w.-]+)+)`")
	shortPath = regexp.MustCompile("`([\\w-]+/[\\w./-]+\\.(?:go|sql|proto))`")
	metric    = regexp.MustCompile(`"(cleanupd_[a-z_]+)"`)
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile("^#+ (.+)$")
	noAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	generated = []string{"tasks.md", "options.md", "dashboard.md", "dashboard-queries.md"}
)

// pages reads the pages in docs, by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		texts[path] = read(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// documents reads the pages in docs and the other documents of the repository, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := pages(t)
	for _, path := range []string{
		"../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md", "../examples/README.md",
	} {
		texts[path] = read(t, path)
	}
	return texts
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every test, file and folder that a document or the Makefile names exists.
func TestSigns(t *testing.T) {
	tests := map[string]bool{}
	var files []string
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		files = append(files, path)
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, f := range declared.FindAllSubmatch(source, -1) {
			tests[string(f[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	texts := documents(t)
	texts["../Makefile"] = read(t, "../Makefile")
	for name, text := range texts {
		for _, test := range testName.FindAllString(text, -1) {
			if !tests[test] {
				t.Errorf("%s names %s, which is no test", name, test)
			}
		}
		for _, path := range filePath.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", path[1])); err != nil {
				t.Errorf("%s names %s: %v", name, path[1], err)
			}
		}
		for _, path := range shortPath.FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(files, func(file string) bool { return strings.HasSuffix(file, "/"+path[1]) }) {
				t.Errorf("%s names %s, which is the end of no file's path", name, path[1])
			}
		}
	}
}

// Every relative link leads to a file that exists and, if it has an anchor, to a heading of that file.
func TestLinks(t *testing.T) {
	for name, text := range documents(t) {
		for _, l := range link.FindAllStringSubmatch(withoutCode(text), -1) {
			target, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s: %v", name, l[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", name, l[1], path)
			}
		}
	}
}

// withoutCode returns a document without its code blocks and code spans.
func withoutCode(text string) string {
	text = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "`")
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	for line := range strings.Lines(regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")) {
		if h := heading.FindStringSubmatch(strings.TrimRight(line, "\n")); h != nil {
			anchor := noAnchor.ReplaceAllString(strings.ToLower(h[1]), "")
			all = append(all, strings.ReplaceAll(anchor, " ", "-"))
		}
	}
	return all
}

// Every page can be reached by links, beginning with the README.
func TestPagesAreLinked(t *testing.T) {
	texts := documents(t)
	reached := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		if text, ok := texts[path]; ok && !reached[path] {
			reached[path] = true
			for _, l := range link.FindAllStringSubmatch(text, -1) {
				target, _, _ := strings.Cut(l[1], "#")
				visit(filepath.Join(filepath.Dir(path), target))
			}
		}
	}
	visit("../README.md")
	for name := range texts {
		if !reached[name] {
			t.Errorf("no link leads from the README to %s", name)
		}
	}
}

// The reference has every RPC and every metric.
func TestReferenceIsComplete(t *testing.T) {
	api := read(t, "reference/api.md")
	protoregistry.GlobalFiles.RangeFilesByPackage("cleanup.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if name := string(methods.Get(j).Name()); !regexp.MustCompile(`\b` + name + `\b`).MatchString(api) {
					t.Errorf("reference/api.md does not have the RPC %s", name)
				}
			}
		}
		return true
	})
	metrics := read(t, "reference/metrics.md")
	sources, err := filepath.Glob("../service/runs/metrics/*.go")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	for _, source := range sources {
		for _, m := range metric.FindAllStringSubmatch(read(t, source), -1) {
			if !strings.Contains(metrics, "`"+m[1]+"`") {
				t.Errorf("reference/metrics.md does not have %s", m[1])
			}
		}
	}
}

// The manual of the console has each page of its menu.
func TestManualOfTheConsoleIsComplete(t *testing.T) {
	manual := read(t, "how-to/console.md")
	menu := regexp.MustCompile(`(?s)path: '\w*',\s*title: '([\w.]+)'`).FindAllStringSubmatch(
		read(t, "../web/src/main.tsx"), -1)
	if len(menu) < 10 {
		t.Fatalf("the console has the pages %q", menu)
	}
	texts := read(t, "../web/src/lang/en.ts")
	for _, page := range menu {
		title := regexp.MustCompile(`'` + page[1] + `': '([^']+)'`).FindStringSubmatch(texts)
		if title == nil || !strings.Contains(manual, "\n| "+title[1]+" |") {
			t.Errorf("the manual of the console has no page %s: %q", page[1], title)
		}
	}
}

// Every task has a section about the source of its rule.
func TestSourcesOfRules(t *testing.T) {
	text := read(t, "explanation/rules.md")
	for _, name := range tasks.Names() {
		source := "(?m)^### " + name + "\n\nSource: (\".+\"|none, ).*\\.\n\\w"
		if !regexp.MustCompile(source).MatchString(text) {
			t.Errorf(
				"rules.md has no section %[1]s that begins with a line as Source: \"a heading\". or Source: none, why.",
				name)
		}
	}
}

// sentenceEnd finds the end of a sentence that is followed by another one.
var sentenceEnd = regexp.MustCompile("[.!?][*_)\"”]* [A-Z`*“(\\[]")

// noSentence finds full stops that end no sentence: in code within a line, and after the number of a list's item.
var noSentence = regexp.MustCompile("`[^`]*`|^\\s*[0-9]+\\.")

// Prose has one sentence a line, so that a diff shows a change alone.
func TestOneSentenceALine(t *testing.T) {
	for path, text := range documents(t) {
		if slices.Contains(generated, filepath.Base(path)) || path == "../examples/README.md" {
			continue
		}
		fenced := false
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			prose := !fenced && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "#")
			if prose && sentenceEnd.MatchString(noSentence.ReplaceAllString(line, "`")) {
				t.Errorf("%s:%d has more than one sentence: %.100s", path, i+1, line)
			}
		}
	}
}
