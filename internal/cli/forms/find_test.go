package forms

import (
	"strings"
	"testing"
)

// The parts of a --variable flag, put together, are the flag.
func FuzzVariableFlag(f *testing.F) {
	for _, text := range []string{
		"", "/", "a/", "/b", "a/b", "a/b:", "a/b:c", "a/b/c:d:e", "a:b/c", ":", "a/b:c/d", "a/:c",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseVariables([]string{text})
		if err != nil {
			return
		}
		v := list[0]
		whole := v.GetApplication() + "/" + v.GetWorkflow()
		if v.GetVariable() != "" {
			whole += ":" + v.GetVariable()
		}
		if v.GetApplication() == "" || v.GetWorkflow() == "" ||
			(whole != strings.TrimSuffix(text, ":") && whole != text) {
			t.Errorf("%q is %v", text, v)
		}
	})
}
