package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/tasks"
)

var (
	testName = regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w*\b`)
	declared = regexp.MustCompile(`(?m)^func (\w+)\(`)
	filePath = regexp.MustCompile(
		"`((?:cmd|deploy|docs|internal|proto|service|tasks|tools|bench|gen|\\.ci)(?:/[\\w.-]+)+)`",
	)
)

// What the documents for developers point at is there: every test, every file and folder.
func TestSigns(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
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
	for _, name := range []string{
		"explanation/architecture.md",
		"reference/catalog.md",
		"how-to/update.md",
		"how-to/deploy.md",
		"how-to/monitor.md",
		"../README.md",
		"../CONTRIBUTING.md",
		"../Makefile",
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range testName.FindAllString(string(text), -1) {
			if !tests[test] {
				t.Errorf("%s names %s, which is no test", name, test)
			}
		}
		for _, path := range filePath.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("..", path[1])); err != nil {
				t.Errorf("%s names %s: %v", name, path[1], err)
			}
		}
	}
}

// Every task has a section that says where its rule comes from.
func TestSourcesOfRules(t *testing.T) {
	text, err := os.ReadFile("explanation/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tasks.Names() {
		source := "(?m)^### " + name + "\n\nSource: (\".+\"|none, ).*\\.\n\\w"
		if !regexp.MustCompile(source).Match(text) {
			t.Errorf(
				"rules.md has no section %[1]s that begins with a line as Source: \"a heading\". or Source: none, why.",
				name,
			)
		}
	}
}

// sentenceEnd finds the end of a sentence that is followed by another one.
var sentenceEnd = regexp.MustCompile("[.!?][*_)\"”]* [A-Z`*“(\\[]")

// noSentence finds what has full stops that end no sentence: code within a line, and the number of a list's item.
var noSentence = regexp.MustCompile("`[^`]*`|^\\s*[0-9]+\\.")

// Prose has one sentence a line, so that a diff shows a change alone.
func TestOneSentenceALine(t *testing.T) {
	paths, err := filepath.Glob("../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md") {
		switch filepath.Base(path) {
		case "tasks.md", "options.md", "dashboard.md": // written by a program
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fenced := false
		for i, line := range strings.Split(string(text), "\n") {
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
