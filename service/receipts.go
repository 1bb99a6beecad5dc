package service

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

func (s *UserData) GetReceipt(
	ctx context.Context, in *cleanupv1.GetReceiptRequest,
) (*cleanupv1.GetReceiptResponse, error) {
	if s.forms == nil {
		return nil, s.noForms()
	}
	r, err := s.forms.Receipt(ctx, in.GetReceiptId())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.GetReceiptResponse{Receipt: receiptMessage(r)}, nil
}

func (s *UserData) VerifyErasure(
	ctx context.Context, in *cleanupv1.VerifyErasureRequest,
) (*cleanupv1.VerifyErasureResponse, error) {
	if err := s.checkReachable(ctx); err != nil {
		return nil, err
	}
	var query *userdata.Query
	if in.GetUserId() != "" || len(in.GetVariables())+len(in.GetPrincipalIds()) > 0 {
		q, wrong := parseQuery(in.GetUserId(), in.GetVariables(), in.GetPrincipalIds())
		if wrong != nil {
			return nil, wrong
		}
		query = &q
	}
	// Nobody searches without an entry in the audit.
	if err := audit.Note(ctx, nil, audit.Details{"erasure_id": in.GetReceiptId()}); err != nil {
		return nil, err
	}
	r, err := s.forms.Verify(ctx, in.GetReceiptId(), query)
	if err != nil {
		return nil, err
	}
	return &cleanupv1.VerifyErasureResponse{Receipt: receiptMessage(r)}, nil
}

func (s *UserData) ListReceipts(
	ctx context.Context, in *cleanupv1.ListReceiptsRequest,
) (*cleanupv1.ListReceiptsResponse, error) {
	if s.forms == nil {
		return nil, s.noForms()
	}
	size, err := parsePageSize(in.GetPageSize(), MaxReceipts)
	if err != nil {
		return nil, err
	}
	list, next, err := s.forms.Receipts(ctx, size, in.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListReceiptsResponse{NextPageToken: next}
	for _, r := range list {
		out.Receipts = append(out.Receipts, receiptMessage(r))
	}
	return out, nil
}

func receiptMessage(r *userdata.Receipt) *cleanupv1.Receipt {
	out := &cleanupv1.Receipt{
		Id:                 r.ID,
		RequestedBy:        string(r.RequestedBy),
		CreateTime:         timestamppb.New(r.CreateTime),
		EndTime:            timestamp(r.EndTime),
		Succeeded:          r.Succeeded,
		DryRun:             r.DryRun,
		Sweep:              r.Sweep,
		Purge:              r.Purge,
		RunId:              r.RunID,
		UserIdHash:         r.UserIDHash,
		Salt:               r.Salt,
		ProcessInstanceIds: idTexts(r.Instances),
		TaskIds:            idTexts(r.Tasks),
		Rows:               rowsMessage(r.Rows),
		Files:              r.Files,
		Problems:           r.Problems,
	}
	if v := r.Verification; v != nil {
		out.Verification = &cleanupv1.Verification{
			VerifyTime:                 timestamppb.New(v.Time),
			Clean:                      v.Clean,
			ProcessInstanceIds:         idTexts(v.Instances),
			TaskIds:                    idTexts(v.Tasks),
			PossibleProcessInstanceIds: idTexts(v.Possible),
			NotSearched:                v.NotSearched,
		}
	}
	return out
}

func rowsMessage(rows forms.Rows) (list []*cleanupv1.TableRows) {
	for _, table := range slices.Sorted(maps.Keys(rows)) {
		list = append(list, &cleanupv1.TableRows{Table: table, Rows: rows[table]})
	}
	return list
}

func idTexts(ids []int64) (texts []string) {
	for _, id := range ids {
		texts = append(texts, strconv.FormatInt(id, 10))
	}
	return texts
}
