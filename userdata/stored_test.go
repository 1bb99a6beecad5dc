package userdata

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
)

func TestStored(t *testing.T) {
	storedtest.Check[Event](t, "event")
	storedtest.Check[entry](t, "entry")
	storedtest.Check[Purge](t, "purge")
	storedtest.Check[Verification](t, "verification")
}
