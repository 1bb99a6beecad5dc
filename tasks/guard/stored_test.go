package guard_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

func TestStored(t *testing.T) {
	storedtest.Check[[]guard.Trip](t, "accepted")
	storedtest.Check[guard.Limits](t, "guards")
}
