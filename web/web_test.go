package web_test

import (
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/web"
)

// entry matches one text of a language file: its key and the text.
var entry = regexp.MustCompile(`'([\w.]+)':\s+'([^']*)',`)

// Every language has exactly the keys of English, with the same placeholders.
func TestLanguages(t *testing.T) {
	t.Parallel()
	placeholders := func(words string) []string {
		found := regexp.MustCompile(`\{\w+\}`).FindAllString(words, -1)
		slices.Sort(found)
		return found
	}
	read := func(language string) map[string]string {
		text, err := os.ReadFile("src/lang/" + language + ".ts")
		if err != nil {
			t.Fatal(err)
		}
		words := map[string]string{}
		for _, found := range entry.FindAllStringSubmatch(string(text), -1) {
			if _, twice := words[found[1]]; twice || strings.TrimSpace(found[2]) == "" {
				t.Errorf("%s: %s is there twice, or has no words", language, found[1])
			}
			words[found[1]] = found[2]
		}
		if written := strings.Count(string(text), "':"); written != len(words) {
			t.Errorf("%s has %d entries, of which %d are read", language, written, len(words))
		}
		return words
	}
	files, err := fs.Glob(os.DirFS("src/lang"), "*.ts")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	english := read("en")
	for _, file := range files {
		language := strings.TrimSuffix(file, ".ts")
		words := read(language)
		for key, in := range english {
			if translated, there := words[key]; !there || !slices.Equal(placeholders(translated), placeholders(in)) {
				t.Errorf("%s has %q for %s, which is %q", language, translated, key, in)
			}
		}
		for key := range words {
			if _, there := english[key]; !there {
				t.Errorf("%s has %s, which English has not", language, key)
			}
		}
	}
}

// translation matches one message of a language: its code and the text.
var translation = regexp.MustCompile(`(?m)^  ([A-Z_]+):\s+'([^']*)',`)

// Every language but English, which the server's messages are in, has a text for each message, with no parameters that
// the message does not have.
func TestMessages(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"de", "fr", "ja"} {
		file, err := os.ReadFile("src/lang/messages/" + language + ".ts")
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{}
		for _, found := range translation.FindAllStringSubmatch(string(file), -1) {
			texts[found[1]] = found[2]
		}
		if written := strings.Count(string(file), "',\n"); written != len(texts) {
			t.Errorf("%s has %d messages, of which %d are read", language, written, len(texts))
		}
		for _, k := range message.Catalog() {
			if texts[k.Code] == "" {
				t.Errorf("%s has no text for %s, which is %q", language, k.Code, k.Template)
			}
			known := message.Placeholders(k.Template)
			for _, name := range message.Placeholders(texts[k.Code]) {
				if !slices.Contains(known, name) {
					t.Errorf("%s uses the parameter %s of %s, which has %q", language, name, k.Code, known)
				}
			}
			delete(texts, k.Code)
		}
		for code := range texts {
			t.Errorf("%s has %s, which is not in the catalogue", language, code)
		}
	}
}

// The whole console, with all languages, takes at most 150 kB compressed.
func TestSize(t *testing.T) {
	t.Parallel()
	var all counter
	err := fs.WalkDir(web.Dist, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := web.Dist.ReadFile(path)
		if err != nil {
			return err
		}
		before, out := all, gzip.NewWriter(&all)
		if _, err := out.Write(text); err != nil {
			return err
		}
		err = out.Close()
		t.Logf("%s: %d bytes", path, all-before)
		return err
	})
	if err != nil || all > 150_000 {
		t.Errorf("it takes %d bytes: %v", all, err)
	}
}

// counter counts the bytes that are written to it.
type counter int

var _ io.Writer = (*counter)(nil)

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
