package service

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

func (s *Service) WhoAmI(ctx context.Context, _ *cleanupv1.WhoAmIRequest) (*cleanupv1.WhoAmIResponse, error) {
	c := access.FromContext(ctx)
	return &cleanupv1.WhoAmIResponse{
		Subject:        c.Subject,
		Role:           cleanupv1.Role(c.Role),
		CredentialType: credentialType(c.By),
		Address:        c.Address,
	}, nil
}

func (s *Service) GetServer(ctx context.Context, _ *cleanupv1.GetServerRequest) (*cleanupv1.GetServerResponse, error) {
	about, err := s.runs.About(ctx)
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.GetServerResponse{
		Version:    about.Version,
		Instance:   about.Instance,
		Replica:    about.Replica,
		Database:   about.Database,
		UserData:   s.hasUserData,
		History:    durationpb.New(about.History),
		PlanMaxAge: durationpb.New(about.PlanAge),

		DatabaseHost: about.Host,
		Campaign:     about.Campaign,
		Undo:         durationpb.New(about.Undo),
	}
	var foreign *failure.Refusal
	if err := s.runs.Own(ctx, s.pool); errors.As(err, &foreign) {
		out.Refusal = foreign.Error()
	} else if err != nil {
		return nil, err
	}
	for _, r := range about.Replicas {
		out.Replicas = append(out.Replicas, &cleanupv1.Replica{
			Name:         r.Name,
			Version:      r.Version,
			Schedule:     r.Schedule,
			StartTime:    timestamppb.New(r.StartTime),
			LastSeenTime: timestamppb.New(r.SeenTime),
		})
	}
	return out, nil
}

// maxFilter is the greatest length of a filter, in characters.
const maxFilter = 200

func (s *Service) ListAudit(ctx context.Context, in *cleanupv1.ListAuditRequest) (*cleanupv1.ListAuditResponse, error) {
	size, err := parsePageSize(in.GetPageSize(), MaxAudit)
	if err != nil {
		return nil, err
	}
	if err := checkText("filter", in.GetFilter(), maxFilter); err != nil {
		return nil, err
	}
	since, err := parseTime("since_time", in.GetSinceTime())
	if err != nil {
		return nil, err
	}
	filter := store.ActFilter{Text: in.GetFilter(), Since: since}
	acts, next, err := store.ListActs(ctx, s.pool, filter, size, in.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListAuditResponse{NextPageToken: next}
	for _, a := range acts {
		details, err := structpb.NewStruct(a.Details)
		if err != nil {
			return nil, err
		}
		out.Entries = append(out.Entries, &cleanupv1.AuditEntry{
			Id:             a.ID,
			Time:           timestamppb.New(a.Time),
			Subject:        string(a.Subject),
			Role:           enumOf[cleanupv1.Role](strings.ToUpper(a.Role)),
			CredentialType: credentialType(a.By),
			Address:        a.Address,
			Rpc:            a.RPC,
			Details:        details,
			StatusCode:     code.Code_value[a.Result],
		})
	}
	return out, nil
}

func credentialType(name string) cleanupv1.CredentialType {
	return enumOf[cleanupv1.CredentialType](strings.ToUpper(name))
}
