package execute_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/tasks/execute"
)

func TestStored(t *testing.T) {
	storedtest.Check[execute.Planned](t, "planned")
	storedtest.Check[[]execute.TablePreview](t, "preview")
	storedtest.Check[[]execute.Trip](t, "accepted")
	storedtest.Check[execute.Guards](t, "guards")
}
