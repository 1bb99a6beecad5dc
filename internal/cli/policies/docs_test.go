package policies

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The examples of the document can be applied as they are, and so can the policies of the demo.
func TestExamplesOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```|## Write it\n\n(.*?)\n\n[A-Z]").
		FindAllStringSubmatch(string(text), -1)
	if len(examples) < 4 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		if found, err := parse("example", strings.NewReader(e[1]+e[2])); err != nil || len(found) == 0 {
			t.Errorf("%v\n%s", err, e[0])
		}
	}
}
