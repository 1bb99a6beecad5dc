package runs_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/service/runs"
)

func TestStored(t *testing.T) { storedtest.Check[runs.Event](t, "event") }
