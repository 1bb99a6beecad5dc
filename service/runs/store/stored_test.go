package store

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
)

func TestStored(t *testing.T) { storedtest.Check[Event](t, "event") }
