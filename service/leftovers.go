package service

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

func (s *Service) ListRemoteDeliveries(
	ctx context.Context, in *cleanupv1.ListRemoteDeliveriesRequest,
) (*cleanupv1.ListRemoteDeliveriesResponse, error) {
	size, err := parsePageSize(in.GetPageSize(), MaxRemoteDeliveries)
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(in.GetAccount(), 0) {
		return nil, failure.Field("account", "holds a NUL character, which no text in the database does")
	}
	list, next, err := store.ListRemoteDeliveries(ctx, s.pool, in.Account, size, in.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListRemoteDeliveriesResponse{NextPageToken: next}
	for _, d := range list {
		out.Deliveries = append(out.Deliveries, &cleanupv1.RemoteDelivery{
			Account:    d.Account,
			RemoteId:   d.RemoteID,
			Label:      d.Label,
			DeliveryId: d.DeliveryID,
			RunId:      d.RunID,
			RetainTime: timestamppb.New(d.RetainTime),
		})
	}
	return out, nil
}
