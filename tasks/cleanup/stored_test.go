package cleanup_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

func TestStored(t *testing.T) {
	storedtest.Check[cleanup.SavedTask](t, "planned")
	storedtest.Check[[]cleanup.PreviewTable](t, "preview")
}
