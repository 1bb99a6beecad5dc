package cli

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// listedTrash returns one entry a page.
type listedTrash struct {
	cleanupv1.RestoreServiceClient
	entries []*cleanupv1.TrashEntry
}

func (l listedTrash) ListTrash(
	_ context.Context, req *cleanupv1.ListTrashRequest, _ ...grpc.CallOption,
) (*cleanupv1.ListTrashResponse, error) {
	n := len(req.GetPageToken())
	page := &cleanupv1.ListTrashResponse{Entries: l.entries[n : n+1]}
	if n+1 < len(l.entries) {
		page.NextPageToken = req.GetPageToken() + "x"
	}
	return page, nil
}

// The question before a purge says how much it would delete.
func TestWhatAPurgeDeletes(t *testing.T) {
	t.Parallel()
	ago := func(age time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-age)) }
	entry := func(run, table, parent string, rows int64, age time.Duration) *cleanupv1.TrashEntry {
		return &cleanupv1.TrashEntry{
			RunId: run, Table: table, ParentTable: parent, Rows: rows, CreateTime: ago(age), ExpireTime: ago(-time.Hour),
		}
	}
	working := entry("c", `"public"."orders"`, "", 1000, 0)
	working.ExpireTime = nil
	client := cleanupd.Client{RestoreServiceClient: listedTrash{entries: []*cleanupv1.TrashEntry{
		entry("a", `"public"."orders"`, "", 1200, 48*time.Hour),
		entry("b", `"public"."orders"`, "", 30, time.Minute),
		entry("b", `"public"."log_2020"`, `"public"."log"`, 1, time.Minute),
		entry("b", `"shop"."a ""b"" c"`, "", 5, time.Minute),
		working,
	}}}
	for want, req := range map[string]*cleanupv1.PurgeTrashRequest{
		"Delete 1,236 rows of 3 tables, from 2 runs,": {RunId: "all, here"},
		"Delete 1,230 rows of 1 table, from 2 runs,":  {Table: "public.orders"},
		"Delete 1 row of 1 table, from 1 run,":        {Table: "log"},
		"Delete 5 rows of 1 table, from 1 run,":       {Table: `a "b" c`},
		"Delete 1,200 rows of 1 table, from 1 run,":   {Table: `"public"."orders"`, OlderThan: durationpb.New(time.Hour)},
		"Delete all that matches":                     {Table: "other"},
	} {
		if got, err := purged(t.Context(), client, req); err != nil || got != want {
			t.Errorf("a purge of %v asks %q, %v; want %q", req, got, err, want)
		}
	}
}
