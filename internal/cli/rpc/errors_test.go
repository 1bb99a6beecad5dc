package rpc_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/internal/cli/rpc"
)

// The code of a status is left out, also in each of several errors.
func TestPlainErrors(t *testing.T) {
	t.Parallel()
	err := rpc.PlainError(errors.Join(status.Error(codes.FailedPrecondition, "first"),
		errors.Join(errors.New("second"), status.Error(codes.Internal, "third"))))
	if want := "first\nsecond\nthird"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := rpc.PlainError(nil); err != nil {
		t.Errorf("no error is %v", err)
	}
}
