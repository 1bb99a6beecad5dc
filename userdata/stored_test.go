package userdata_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/userdata"
)

func TestStored(t *testing.T) {
	storedtest.Check[userdata.Event](t, "event")
	storedtest.Check[userdata.Entry](t, "entry")
	storedtest.Check[userdata.Purge](t, "purge")
	storedtest.Check[userdata.Verification](t, "verification")
}
