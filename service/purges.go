package service

import (
	"context"

	"github.com/jackc/pgx/v5"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/userdata"
)

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
	page, next, err := pageOf(list, in.GetPageSize(), in.GetPageToken(), func(r userdata.Purge) string { return r.Name })
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListFormsPurgesResponse{NextPageToken: next}
	for _, p := range page {
		out.Purges = append(out.Purges, purgeMessage(p))
	}
	return out, nil
}

func (s *UserData) SetFormsPurge(
	ctx context.Context, in *cleanupv1.SetFormsPurgeRequest,
) (*cleanupv1.SetFormsPurgeResponse, error) {
	if s.forms == nil {
		return nil, s.noForms()
	}
	given, mask := in.GetPurge(), in.GetUpdateMask()
	name, err := nameOf("purge.name", given.GetName(), in.GetName())
	if err != nil {
		return nil, err
	}
	if err := checkMask(mask, given).Err(); err != nil {
		return nil, err
	}
	stored, err := s.forms.SetPurge(ctx, name, given.GetEtag(), func(before *userdata.Purge) (userdata.Purge, error) {
		if before == nil {
			if mask != nil {
				return userdata.Purge{}, userdata.NoPurge(name)
			}
			before = &userdata.Purge{}
		}
		p := merge(purgeMessage(*before), given, mask)
		return userdata.Purge{
			Name:        name,
			Application: p.GetApplication(),
			Workflow:    p.GetWorkflow(),
			DateColumn:  p.GetDateColumn(),
			Days:        int(p.GetDays()),
			Enabled:     p.GetEnabled(),
		}, nil
	}, notePurge)
	if err != nil {
		return nil, err
	}
	return &cleanupv1.SetFormsPurgeResponse{Purge: purgeMessage(stored)}, nil
}

func (s *UserData) DeleteFormsPurge(
	ctx context.Context, in *cleanupv1.DeleteFormsPurgeRequest,
) (*cleanupv1.DeleteFormsPurgeResponse, error) {
	if s.forms == nil {
		return nil, s.noForms()
	}
	if err := s.forms.DeletePurge(ctx, in.GetName(), in.GetEtag(), notePurge); err != nil {
		return nil, err
	}
	return &cleanupv1.DeleteFormsPurgeResponse{}, nil
}

func notePurge(ctx context.Context, tx pgx.Tx, before, after *userdata.Purge) error {
	return audit.Note(ctx, tx, audit.Details{"from": before, "to": after})
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
