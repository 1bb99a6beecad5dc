package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// Control characters are escaped wherever they are in a message; everything else is unchanged.
func TestPrintable(t *testing.T) {
	t.Parallel()
	const bad, good = "e\x1b[31m\nReceipt \"fake\"", `e\x1b[31m Receipt \"fake\"`
	message := func(text string) proto.Message {
		return &cleanupv1.ListReceiptsResponse{NextPageToken: "Müller's \"x\" \\ 日本", Receipts: []*cleanupv1.Receipt{{
			RequestedBy: text, Files: []string{"a b", text}, Rows: []*cleanupv1.TableRows{{Table: text, Rows: 3}},
		}}}
	}
	got := message(bad)
	makePrintable(got)
	if !proto.Equal(got, message(good)) {
		t.Errorf("got %v", got)
	}
}
