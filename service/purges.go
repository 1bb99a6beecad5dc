package service

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/userdata/purge"
)

// ListFormsPurges implements cleanupv1.UserDataServiceServer.
func (s *UserData) ListFormsPurges(
	ctx context.Context, in *cleanupv1.ListFormsPurgesRequest,
) (*cleanupv1.ListFormsPurgesResponse, error) {
	if s.forms == nil {
		return nil, s.noForms()
	}
	list, err := s.forms.Purges(ctx)
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(list, in.GetPageSize(), in.GetPageToken(), func(r purge.Rule) string { return r.Name })
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListFormsPurgesResponse{NextPageToken: next}
	for _, p := range page {
		out.Purges = append(out.Purges, purgeMessage(p))
	}
	return out, nil
}

// SetFormsPurge implements cleanupv1.UserDataServiceServer.
func (s *UserData) SetFormsPurge(
	ctx context.Context, in *cleanupv1.SetFormsPurgeRequest,
) (*cleanupv1.SetFormsPurgeResponse, error) {
	if s.forms == nil {
		return nil, s.noForms()
	}
	given := in.GetPurge()
	if given.GetName() != "" && in.GetName() != "" && given.GetName() != in.GetName() {
		return nil, failure.Field("purge.name", "is not the name in the request")
	}
	p := purge.Rule{
		Name:        cmp.Or(given.GetName(), in.GetName()),
		Application: given.GetApplication(),
		Workflow:    given.GetWorkflow(),
		DateColumn:  given.GetDateColumn(),
		Days:        int(given.GetDays()),
		Enabled:     given.GetEnabled(),
	}
	if err := s.forms.SetPurge(ctx, p, given.GetEtag(), purgeDetails(&p)); err != nil {
		return nil, err
	}
	return &cleanupv1.SetFormsPurgeResponse{Purge: purgeMessage(p)}, nil
}

// DeleteFormsPurge implements cleanupv1.UserDataServiceServer.
func (s *UserData) DeleteFormsPurge(
	ctx context.Context, in *cleanupv1.DeleteFormsPurgeRequest,
) (*cleanupv1.DeleteFormsPurgeResponse, error) {
	if s.forms == nil {
		return nil, s.noForms()
	}
	if err := s.forms.DeletePurge(ctx, in.GetName(), purgeDetails(nil)); err != nil {
		return nil, err
	}
	return &cleanupv1.DeleteFormsPurgeResponse{}, nil
}

// purgeDetails returns a function that adds the old and the new purge to the audit entry; to is nil if it is deleted.
func purgeDetails(to *purge.Rule) func(ctx context.Context, tx pgx.Tx, before *purge.Rule) error {
	return func(ctx context.Context, tx pgx.Tx, before *purge.Rule) error {
		return audit.Note(ctx, tx, audit.Details{"from": before, "to": to})
	}
}

func purgeMessage(p purge.Rule) *cleanupv1.FormsPurge {
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
