package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The documents say what the program says; make generate writes them.
func TestDocumentsAreCurrent(t *testing.T) {
	for _, name := range pages {
		want, err := page(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("../reference", name)); err != nil || string(got) != want {
			t.Errorf("%s is not current: %v", name, err)
		}
	}
}
