package contexts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A broken file is not used, nor overwritten.
func TestBrokenFile(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", folder)
	t.Setenv("HOME", folder) // where macOS has the folder
	name, err := path()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"contexts: [": "yaml",
		"contexts: {a: {server: x, token: secret}}": `unknown field "token"`,
		"current: prod":                      `the current context "prod" is missing`,
		"contexts: {a: {}}":                  `the context "a" has no server`,
		"contexts: {two/words: {server: x}}": `"two/words" is not a name for a context`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, loadErr := Load()
		changeErr := Change(func(f *File) error {
			f.Set("b", Context{Address: "127.0.0.1:1"})
			return nil
		})
		for what, err := range map[string]error{"Load": loadErr, "Change": changeErr} {
			if err == nil || !strings.Contains(err.Error(), "mend or remove it: "+name) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s of %q: %v, want %q", what, text, err, want)
			}
		}
		if left, err := os.ReadFile(name); err != nil || string(left) != text {
			t.Errorf("%q became %q, %v", text, left, err)
		}
	}
}
