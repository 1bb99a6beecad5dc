package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/userdata"
)

func (s *UserData) EraseUserData(
	in *cleanupv1.EraseUserDataRequest, stream cleanupv1.UserDataService_EraseUserDataServer,
) error {
	if err := s.checkReachable(stream.Context()); err != nil {
		return err
	}
	request, err := parseErasure(in)
	if err != nil {
		return err
	}
	details := audit.Details{
		"dry_run":              in.GetDryRun(),
		"process_instance_ids": in.GetProcessInstanceIds(),
		"task_ids":             in.GetTaskIds(),
	}
	return s.erase(stream.Context(), request, in.GetDryRun(), details, func(e userdata.Event) error {
		return stream.Send(&cleanupv1.EraseUserDataResponse{Event: eraseMessage(e)})
	})
}

func (s *UserData) SweepDocuments(
	in *cleanupv1.SweepDocumentsRequest, stream cleanupv1.UserDataService_SweepDocumentsServer,
) error {
	if err := s.checkReachable(stream.Context()); err != nil {
		return err
	}
	return s.erase(
		stream.Context(),
		userdata.Request{Sweep: true},
		in.GetDryRun(),
		audit.Details{"dry_run": in.GetDryRun()},
		func(e userdata.Event) error {
			return stream.Send(&cleanupv1.SweepDocumentsResponse{Event: eraseMessage(e)})
		},
	)
}

func (s *UserData) erase(
	ctx context.Context, request userdata.Request, dryRun bool, details audit.Details, send func(userdata.Event) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stopping, func() { cancel(errErasureGoesOn) })()
	request.RequestedBy = access.FromContext(ctx).String()
	if dryRun {
		if err := audit.Note(ctx, nil, details); err != nil {
			return err
		}
		return orStopping(ctx, s.forms.Preview(ctx, request, send))
	}
	request.Starting = func(ctx context.Context, id string) error { // so that the audit is committed first
		details["erasure_id"] = id
		return audit.Note(ctx, nil, details)
	}
	id, err := s.forms.Start(ctx, request)
	if err != nil {
		return orStopping(ctx, err)
	}
	audit.Settle(ctx, codes.OK.String())
	receipt, err := s.forms.Watch(ctx, id, send)
	switch {
	case errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errErasureGoesOn):
		return errErasureGoesOn
	case err != nil:
		return err
	case !receipt.Succeeded:
		return transport.StatusWithInfo(codes.Internal, "not everything was erased: "+firstProblems(receipt.Problems),
			"ERASURE_FAILED", map[string]string{"erasure_id": id})
	}
	return nil
}

// firstProblems shortens the list, because clients limit the length of a status.
func firstProblems(problems []string) string {
	const most = 5
	if more := len(problems) - most; more > 0 {
		problems = append(slices.Clone(problems[:most]), fmt.Sprintf("and %d more: see the receipt", more))
	}
	return strings.Join(problems, "; ")
}

// orStopping tells the caller to try again if the call ended because this replica is stopping.
func orStopping(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errErasureGoesOn) {
		return status.Error(codes.Unavailable, "this replica is stopping, and nothing was erased: try again")
	}
	return err
}

var errErasureGoesOn = status.Error(codes.Unavailable,
	"this replica is stopping; the erasure continues on another replica, or after a restart: see its receipt")

// parseErasure fails with failure.Violations.
func parseErasure(in *cleanupv1.EraseUserDataRequest) (r userdata.Request, err error) {
	var wrong failure.Violations
	ids := func(field string, texts []string) (list []int64) {
		for i, text := range texts {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil || id <= 0 {
				wrong.Addf(fmt.Sprintf("%s[%d]", field, i),
					"must be a number above 0, not %.64q (0 means none: it would erase everybody's orphan tasks)", text)
			}
			list = append(list, id)
		}
		return list
	}
	r.Instances, r.Tasks = ids("process_instance_ids", in.GetProcessInstanceIds()), ids("task_ids", in.GetTaskIds())
	byID := len(r.Instances)+len(r.Tasks) > 0
	byUser := in.GetUserId() != "" || len(in.GetVariables())+len(in.GetPrincipalIds()) > 0
	switch {
	case byID && byUser:
		wrong.Add("user_id", "must not be given together with ids (nor variables, nor principal_ids): give either")
	case !byID && !byUser:
		wrong.Add("user_id", "is required unless ids of process instances or tasks are given")
	}
	if wrong != nil {
		return r, wrong
	}
	if byUser {
		q, err := parseQuery(in.GetUserId(), in.GetVariables(), in.GetPrincipalIds())
		r.Query = &q
		return r, err
	}
	return r, nil
}

func eraseMessage(e userdata.Event) *cleanupv1.EraseEvent {
	out := &cleanupv1.EraseEvent{ErasureId: e.Erasure, Sequence: e.Sequence, Time: timestamppb.New(e.Time)}
	switch {
	case e.Instance != nil:
		out.Event = &cleanupv1.EraseEvent_InstanceErased{InstanceErased: &cleanupv1.InstanceErased{
			Id:                    fmt.Sprint(e.Instance.ID),
			LongLivedInvocationId: e.Instance.Invocation,
			Terminated:            e.Instance.Terminated,
			Rows:                  rowsMessage(e.Instance.Rows),
		}}
	case e.Task != nil:
		out.Event = &cleanupv1.EraseEvent_TaskErased{
			TaskErased: &cleanupv1.TaskErased{Id: fmt.Sprint(e.Task.ID), Rows: rowsMessage(e.Task.Rows)},
		}
	case e.Document != nil:
		out.Event = &cleanupv1.EraseEvent_DocumentErased{
			DocumentErased: &cleanupv1.DocumentErased{
				DocumentId: e.Document.ID,
				SessionIds: e.Document.Sessions,
				Rows:       rowsMessage(e.Document.Rows),
			},
		}
	case e.File != "":
		out.Event = &cleanupv1.EraseEvent_FileDeleted{FileDeleted: &cleanupv1.FileDeleted{Path: e.File}}
	case e.Log != nil:
		out.Event = &cleanupv1.EraseEvent_Log{Log: &cleanupv1.LogEntry{
			Level:   cleanupv1.LogLevel(cleanupv1.LogLevel_value["LOG_LEVEL_"+string(e.Log.Level)]),
			Message: e.Log.Message,
		}}
	case e.Receipt != nil:
		out.Event = &cleanupv1.EraseEvent_Receipt{Receipt: receiptMessage(e.Receipt)}
	}
	return out
}
