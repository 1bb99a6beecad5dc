package cleanupd_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A client that imports the generated packages, or this one, needs gRPC, protobuf and the gateway's runtime, and
// nothing of the server.
func TestAClientNeedsFewModules(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".",
		"./gen/...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	needed := strings.Fields(string(out))
	slices.Sort(needed)
	want := []string{
		"github.com/cleanupd/cleanupd", "github.com/grpc-ecosystem/grpc-gateway/v2", "golang.org/x/net",
		"golang.org/x/sys", "golang.org/x/text", "google.golang.org/genproto/googleapis/api",
		"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
	}
	if got := slices.Compact(needed); !slices.Equal(got, want) {
		t.Errorf("a client needs %q, want %q", got, want)
	}
}
