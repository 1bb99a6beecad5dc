package userdata_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/userdata/purge"
	"github.com/cleanupd/cleanupd/userdata/report"
)

func TestStored(t *testing.T) {
	storedtest.Check[report.Event](t, "event")
	storedtest.Check[report.Entry](t, "entry")
	storedtest.Check[purge.Rule](t, "purge")
	storedtest.Check[report.Verification](t, "verification")
}
