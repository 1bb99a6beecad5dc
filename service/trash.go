package service

import (
	"context"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

func (s *Service) ListTrash(
	ctx context.Context, in *cleanupv1.ListTrashRequest,
) (*cleanupv1.ListTrashResponse, error) {
	asked := in.GetPageSize()
	if asked == 0 {
		asked = maxListed
	}
	size, err := parsePageSize(asked, maxListed)
	if err != nil {
		return nil, err
	}
	list, next, err := trash.List(ctx, s.pool, in.GetRunId(), size, in.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListTrashResponse{NextPageToken: next}
	if err := s.pool.QueryRow(ctx, trash.BytesSQL).Scan(&out.Bytes); err != nil {
		return nil, err
	}
	if out.MaxBytes, err = s.runs.UndoMaxBytes(ctx); err != nil {
		return nil, err
	}
	for _, e := range list {
		out.Entries = append(out.Entries, &cleanupv1.TrashEntry{
			RunId:       e.Run,
			Task:        e.Task,
			Table:       e.Root,
			ParentTable: pgx.Identifier(e.Parent).Sanitize(),
			Kind:        enumOf[cleanupv1.TrashKind](e.Kind),
			Rows:        e.Rows,
			Bytes:       e.Bytes,
			CreateTime:  timestamppb.New(e.Created),
			ExpireTime:  timestamp(e.Expires),
		})
	}
	return out, nil
}

func (s *Service) RestoreTrash(
	in *cleanupv1.RestoreTrashRequest, stream cleanupv1.RestoreService_RestoreTrashServer,
) error {
	if in.GetRunId() == "" {
		return failure.Field("run_id", "is missing: the run that deleted what is to come back")
	}
	run, err := s.runs.StartRestore(stream.Context(), runs.RestoreRequest{
		Run:         in.GetRunId(),
		Tasks:       in.GetTasks(),
		Tables:      in.GetTables(),
		Keys:        in.GetKeys(),
		Into:        in.GetIntoSchema(),
		RequestedBy: access.FromContext(stream.Context()).String(),
	})
	if err != nil {
		return err
	}
	audit.Settle(stream.Context(), codes.OK.String())
	w := watcher{s.runs, s.stopping, stream, in.GetDetach()}
	return w.watch(stream.Context(), run.ID, store.Place{})
}

func (s *Service) PurgeTrash(
	ctx context.Context, in *cleanupv1.PurgeTrashRequest,
) (*cleanupv1.PurgeTrashResponse, error) {
	switch {
	case in.GetRunId() == "" && in.GetTable() == "" && in.GetOlderThan() == nil:
		return nil, failure.Field("run_id", "is missing: say what to delete by a run, a table or an age")
	case len(in.GetWhere()) > 0 && in.GetTable() == "":
		return nil, failure.Field("table", "is missing, which where needs")
	case in.GetOlderThan() != nil && (!in.GetOlderThan().IsValid() || in.GetOlderThan().AsDuration() < 0):
		return nil, failure.Field("older_than", "must not be negative")
	}
	purged, err := s.runs.PurgeTrash(ctx, in.GetRunId(), in.GetTable(), in.GetOlderThan().AsDuration(), in.GetWhere())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.PurgeTrashResponse{
		Rows: purged.Rows, Entries: purged.Entries, Tables: purged.Tables, Left: purged.Left,
	}, nil
}
