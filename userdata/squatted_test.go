package userdata_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/userdata"
)

// The log names a role that blocks erasures by the lock of the folder, and the erasures are resumed afterwards.
func TestSquattedFolder(t *testing.T) {
	t.Parallel()
	f, ids := sharedDocuments(t, onPostgres, 2)
	mallory := f.record.Role("mallory")
	squatter := f.record.For(mallory).Hold("SELECT pg_advisory_xact_lock(x'666f6c646572'::bigint)")
	reported, log := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan struct{})
	go func() {
		userdata.New(f.config).Work(ctx, slog.New(slog.NewTextHandler(log, nil)))
		_ = log.Close()
		close(ended)
	}()
	line := make([]byte, 4096)
	n, err := reported.Read(line)
	if want := fmt.Sprintf("process %d of the role", squatter.Conn().PgConn().PID()); err != nil || !strings.Contains(
		string(line[:n]), want,
	) ||
		!strings.Contains(string(line[:n]), mallory) {
		t.Errorf("%v %s", err, line[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, reported) }()
	if err := squatter.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.allErased(ids)
	cancel()
	<-ended
}
