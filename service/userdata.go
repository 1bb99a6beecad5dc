package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

type UserData struct {
	cleanupv1.UnimplementedUserDataServiceServer
	forms *userdata.Manager
	// unavailable says why the configured Forms database must not be used; nil if it may be used, or if none is
	// configured.
	unavailable error
	// stopping is done when streams have to end.
	stopping context.Context
}

// NewUserData returns a service all of whose calls fail if forms is nil. When stopping ends, streams end with
// UNAVAILABLE.
func NewUserData(stopping context.Context, forms *userdata.Manager) *UserData {
	return &UserData{forms: forms, stopping: stopping}
}

// NoUserData returns a service all of whose calls fail, because the Forms database must not be used.
func NoUserData(why error) *UserData { return &UserData{unavailable: why} }

// ready returns nil without a Forms database, because there is nothing to wait for.
func (u *UserData) ready(ctx context.Context) error {
	if u.forms == nil {
		return nil
	}
	return u.forms.Ready(ctx)
}

// errNoForms says that the server was started without a Forms database.
var errNoForms = status.Error(codes.FailedPrecondition,
	"this server knows no AEM Forms database: start it with --forms-database-url")

func (s *UserData) noForms() error {
	if s.unavailable != nil {
		return s.unavailable
	}
	return errNoForms
}

// checkReachable fails if there is no Forms database, or if the service's own database belongs to another instance
// by now.
func (s *UserData) checkReachable(ctx context.Context) error {
	if s.forms == nil {
		return s.noForms()
	}
	return s.forms.Own(ctx)
}

func (s *UserData) FindUserData(
	ctx context.Context, in *cleanupv1.FindUserDataRequest,
) (*cleanupv1.FindUserDataResponse, error) {
	if err := s.checkReachable(ctx); err != nil {
		return nil, err
	}
	query, wrong := parseQuery(in.GetUserId(), in.GetVariables(), nil)
	if wrong != nil {
		return nil, wrong
	}
	if err := audit.Note(ctx, nil, audit.Details{}); err != nil { // no search without an entry in the audit
		return nil, err
	}
	found, err := s.forms.Find(ctx, query)
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.FindUserDataResponse{
		PrincipalIds:  found.Principals,
		OrphanTaskIds: idTexts(found.OrphanTasks),
		NotSearched:   found.NotSearched,
		BlindSpots:    s.forms.BlindSpots(),
	}
	for _, instance := range found.Instances {
		message := &cleanupv1.ProcessInstance{
			Id:                    fmt.Sprint(instance.ID),
			LongLivedInvocationId: instance.Invocation,
			Status:                instance.Status,
		}
		for _, r := range instance.Reasons {
			message.Reasons = append(message.Reasons, reasonMessage(r))
		}
		out.ProcessInstances = append(out.ProcessInstances, message)
	}
	return out, nil
}

func reasonMessage(r userdata.Reason) *cleanupv1.Reason {
	out := &cleanupv1.Reason{Kind: enumOf[cleanupv1.Reason_Kind](r.Kind)}
	if r.Kind == userdata.InVariable {
		out.Variable = &cleanupv1.WorkflowVariable{
			Application: r.Variable.Application,
			Workflow:    r.Variable.Workflow,
			Variable:    r.Variable.Name,
		}
		out.Match = enumOf[cleanupv1.Match](r.Match)
	}
	return out
}

// parseQuery fails with failure.Violations.
func parseQuery(user string, variables []*cleanupv1.WorkflowVariable, principals []string) (userdata.Query, error) {
	q := userdata.Query{UserID: user, PrincipalIDs: principals}
	var wrong failure.Violations
	check := func(field, value string, required bool) {
		switch {
		case required && value == "":
			wrong.Add(field, "is required")
		case strings.ContainsRune(value, 0):
			wrong.Add(field, "contains a NUL character, which PostgreSQL and MySQL cannot store")
		}
	}
	check("user_id", user, true)
	for i, v := range variables {
		check(fmt.Sprintf("variables[%d].application", i), v.GetApplication(), true)
		check(fmt.Sprintf("variables[%d].workflow", i), v.GetWorkflow(), true)
		check(fmt.Sprintf("variables[%d].variable", i), v.GetVariable(), false)
		q.Variables = append(q.Variables,
			userdata.Variable{Application: v.GetApplication(), Workflow: v.GetWorkflow(), Name: v.GetVariable()})
	}
	if wrong != nil {
		return q, wrong
	}
	return q, nil
}

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

// orStopping makes clients retry if the call ended because this replica is stopping.
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
		wrong.Add("user_id", "cannot be given, nor variables or principals, beside ids of process instances or tasks")
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
			Level:   enumOf[cleanupv1.LogLevel](e.Log.Level),
			Message: e.Log.Message,
		}}
	case e.Receipt != nil:
		out.Event = &cleanupv1.EraseEvent_Receipt{Receipt: receiptMessage(e.Receipt)}
	}
	return out
}

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
	// No search without an entry in the audit.
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
