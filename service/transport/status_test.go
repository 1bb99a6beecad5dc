package transport

import (
	"testing"

	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// A message with bytes that are not valid UTF-8, wherever they are, can be sent.
func TestInvalidTextsAreReplaced(t *testing.T) {
	t.Parallel()
	m := func(bad string) *cleanupv1.Run {
		return &cleanupv1.Run{Error: bad, Results: []*cleanupv1.TaskResult{{
			Task:     "x",
			Metadata: map[string]string{bad: bad, "good": bad, bad + bad: "good"},
			Preview:  []*cleanupv1.TablePreview{{Names: []string{"good", bad}}},
		}}}
	}
	given := m("a\xff")
	raw, err := Encode(given)
	if err != nil {
		t.Fatal(err)
	}
	got := &cleanupv1.Run{}
	if err := proto.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, m("a\ufffd")) {
		t.Errorf("got %v", got)
	}
	if given.GetError() != "a\xff" {
		t.Error("the message itself was changed")
	}
}
