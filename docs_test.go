package cleanupd_test

import (
	"bytes"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/architecture.md names exist, in the packages that it names.
func TestArchitectureNamesTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z/]+)` (Test\\w+(?:, Test\\w+)*)").FindAllSubmatch(text, -1)
	if len(names) < 10 {
		t.Fatalf("it names tests of %d packages", len(names))
	}
	for _, found := range names {
		var tests []byte
		files, err := fs.Glob(os.DirFS(string(found[1])), "*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := os.ReadFile(string(found[1]) + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			tests = append(tests, file...)
		}
		for _, name := range strings.Split(string(found[2]), ", ") {
			if !bytes.Contains(tests, []byte("func "+name+"(")) {
				t.Errorf("%s has no %s", found[1], name)
			}
		}
	}
}
