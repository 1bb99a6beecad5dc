package service

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func (s *Service) CreateHold(
	ctx context.Context, in *cleanupv1.CreateHoldRequest,
) (*cleanupv1.CreateHoldResponse, error) {
	given := in.GetHold()
	by := access.FromContext(ctx).String()
	hold := store.Hold{Reason: connection.Text(given.GetReason()), CreatedBy: connection.Text(by)}
	switch what := given.GetWhat().(type) {
	case *cleanupv1.Hold_Deliveries:
		hold.Kind, hold.IDs = store.HoldDeliveries, what.Deliveries.GetIds()
	case *cleanupv1.Hold_Lists:
		hold.Kind, hold.IDs = store.HoldLists, what.Lists.GetIds()
	case *cleanupv1.Hold_Workflows:
		hold.Kind, hold.IDs = store.HoldWorkflows, what.Workflows.GetIds()
	case *cleanupv1.Hold_Recipients:
		hold.Kind, hold.IDs = store.HoldRecipients, what.Recipients.GetIds()
	case *cleanupv1.Hold_Table:
		hold.Kind, hold.Table = store.HoldTable, what.Table.GetName()
	case *cleanupv1.Hold_Rows:
		hold.Kind, hold.Rows = store.HoldRows, &rules.HeldRows{Table: what.Rows.GetTable()}
		for _, c := range what.Rows.GetColumns() {
			hold.Rows.Columns = append(hold.Rows.Columns, rules.HeldColumn{Column: c.GetColumn(), Value: c.GetValue()})
		}
	case *cleanupv1.Hold_Everything:
		hold.Kind = store.HoldEverything
	}
	var err error
	if hold.ExpireTime, err = parseTime("hold.expire_time", given.GetExpireTime()); err != nil {
		return nil, err
	}
	stored, err := s.runs.CreateHold(ctx, hold)
	if err != nil {
		return nil, err
	}
	warnings := stored.Hidden
	if stored.RowsNow != nil && *stored.RowsNow == 0 {
		warnings = append(warnings, message.HoldOfNoRows.With("table", stored.Rows.Table))
	}
	return &cleanupv1.CreateHoldResponse{
		Hold: holdMessage(stored), RowsNow: stored.RowsNow, Warnings: messages(warnings),
	}, nil
}

func (s *Service) ListHolds(ctx context.Context, in *cleanupv1.ListHoldsRequest) (*cleanupv1.ListHoldsResponse, error) {
	size, err := parsePageSize(in.GetPageSize(), MaxHolds)
	if err != nil {
		return nil, err
	}
	list, next, err := s.runs.ListHolds(ctx, in.GetIncludeEnded(), size, in.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListHoldsResponse{NextPageToken: next}
	for i := range list {
		out.Holds = append(out.Holds, holdMessage(&list[i]))
	}
	return out, nil
}

func (s *Service) ReleaseHold(
	ctx context.Context, in *cleanupv1.ReleaseHoldRequest,
) (*cleanupv1.ReleaseHoldResponse, error) {
	released, err := s.runs.ReleaseHold(ctx, in.GetHoldId(), access.FromContext(ctx).String())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.ReleaseHoldResponse{Hold: holdMessage(released)}, nil
}

func holdMessage(h *store.Hold) *cleanupv1.Hold {
	out := &cleanupv1.Hold{
		Id:          h.ID,
		Reason:      string(h.Reason),
		CreatedBy:   string(h.CreatedBy),
		CreateTime:  timestamppb.New(h.CreateTime),
		ExpireTime:  timestamp(h.ExpireTime),
		ReleaseTime: timestamp(h.ReleaseTime),
		ReleasedBy:  string(h.ReleasedBy),
		NotCovered:  h.NotCovered,
		Warnings:    messages(h.Warnings),
	}
	rows := &cleanupv1.HeldRows{Ids: h.IDs}
	switch h.Kind {
	case store.HoldDeliveries:
		out.What = &cleanupv1.Hold_Deliveries{Deliveries: rows}
	case store.HoldLists:
		out.What = &cleanupv1.Hold_Lists{Lists: rows}
	case store.HoldWorkflows:
		out.What = &cleanupv1.Hold_Workflows{Workflows: rows}
	case store.HoldRecipients:
		out.What = &cleanupv1.Hold_Recipients{Recipients: rows}
	case store.HoldTable:
		out.What = &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: campaign.FullName(h.Schema, h.Table)}}
	case store.HoldRows:
		held := &cleanupv1.HeldTableRows{Table: h.Rows.Table}
		for _, c := range h.Rows.Columns {
			held.Columns = append(held.Columns, &cleanupv1.HeldColumn{Column: c.Column, Value: c.Value})
		}
		out.What = &cleanupv1.Hold_Rows{Rows: held}
	case store.HoldEverything:
		out.What = &cleanupv1.Hold_Everything{Everything: &cleanupv1.HeldEverything{}}
	}
	return out
}
