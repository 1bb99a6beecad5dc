package purge_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func TestStored(t *testing.T) { storedtest.Check[purge.Cursor](t, "cursor") }
