package preview_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/tasks/preview"
)

func TestStored(t *testing.T) {
	storedtest.Check[preview.Task](t, "planned")
	storedtest.Check[[]preview.Table](t, "preview")
}
