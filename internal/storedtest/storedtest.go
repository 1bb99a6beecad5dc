// Package storedtest checks how Go values are stored as JSON. Replicas of two versions read each other's values, so
// the stored names must not change when a Go field is renamed.
package storedtest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files of what is stored")

// Check sets all fields of a value and compares it with the golden file testdata/stored/NAME.json: the value must be
// written as in the file, and read back from it unchanged. Each field that is stored must have a name in its tag.
func Check[T any](t *testing.T, name string) {
	t.Helper()
	var value, read T
	fill(t, reflect.ValueOf(&value).Elem())
	written, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "stored", name+".json")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(written, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(golden), written) {
		t.Errorf("%T is not stored as in %s any more, but as\n%s", value, path, written)
	}
	if err := json.Unmarshal(golden, &read); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, value) {
		t.Errorf("%s is read as %+v, not as %+v", path, read, value)
	}
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		fillStruct(t, v)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint32:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		t.Fatalf("a %s cannot be stored", v.Type())
	}
}

func fillStruct(t *testing.T, v reflect.Value) {
	t.Helper()
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 4, 0, 0, 0, time.UTC)))
		return
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok { // stored as a text
		if err := text.UnmarshalText([]byte("text")); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "":
			t.Errorf("%s.%s has no name for JSON", v.Type(), field.Name)
		default:
			fill(t, v.Field(i))
		}
	}
}
