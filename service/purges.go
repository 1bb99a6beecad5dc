package service

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/userdata"
)

// ListFormsPurges implements cleanupv1.UserDataServiceServer.
func (s *UserData) ListFormsPurges(
	ctx context.Context,
	_ *cleanupv1.ListFormsPurgesRequest,
) (*cleanupv1.ListFormsPurgesResponse, error) {
	if s.forms == nil {
		return nil, s.none()
	}
	list, err := s.forms.Purges(ctx)
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListFormsPurgesResponse{}
	for _, p := range list {
		out.Purges = append(out.Purges, purgeMessage(p))
	}
	return out, nil
}

// SetFormsPurge implements cleanupv1.UserDataServiceServer.
func (s *UserData) SetFormsPurge(
	ctx context.Context,
	in *cleanupv1.SetFormsPurgeRequest,
) (*cleanupv1.SetFormsPurgeResponse, error) {
	if s.forms == nil {
		return nil, s.none()
	}
	given := in.GetPurge()
	if given.GetName() != "" && in.GetName() != "" && given.GetName() != in.GetName() {
		return nil, failure.Field("purge.name", "is not the name in the request")
	}
	p := userdata.Purge{
		Name:        cmp.Or(given.GetName(), in.GetName()),
		Application: given.GetApplication(),
		Workflow:    given.GetWorkflow(),
		DateColumn:  given.GetDateColumn(),
		Days:        int(given.GetDays()),
		Enabled:     given.GetEnabled(),
	}
	if err := s.forms.SetPurge(ctx, p, given.GetEtag(), noteFrom(&p)); err != nil {
		return nil, err
	}
	return &cleanupv1.SetFormsPurgeResponse{Purge: purgeMessage(p)}, nil
}

// DeleteFormsPurge implements cleanupv1.UserDataServiceServer.
func (s *UserData) DeleteFormsPurge(
	ctx context.Context,
	in *cleanupv1.DeleteFormsPurgeRequest,
) (*cleanupv1.DeleteFormsPurgeResponse, error) {
	if s.forms == nil {
		return nil, s.none()
	}
	if err := s.forms.DeletePurge(ctx, in.GetName(), noteFrom(nil)); err != nil {
		return nil, err
	}
	return &cleanupv1.DeleteFormsPurgeResponse{}, nil
}

// noteFrom notes for the audit that a purge becomes another one; nil: that it is deleted.
func noteFrom(to *userdata.Purge) func(ctx context.Context, tx pgx.Tx, before *userdata.Purge) error {
	return func(ctx context.Context, tx pgx.Tx, before *userdata.Purge) error {
		return audit.Note(ctx, tx, audit.Details{"from": before, "to": to})
	}
}

func purgeMessage(p userdata.Purge) *cleanupv1.FormsPurge {
	return &cleanupv1.FormsPurge{
		Name:        p.Name,
		Application: p.Application,
		Workflow:    p.Workflow,
		DateColumn:  p.DateColumn,
		Days:        int32(p.Days),
		Enabled:     p.Enabled,
		Etag:        p.Etag(),
	}
}
