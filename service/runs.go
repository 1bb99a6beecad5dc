package service

import (
	"context"
	"errors"
	"maps"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func (s *Service) RunCleanup(in *cleanupv1.RunCleanupRequest, stream cleanupv1.CleanupService_RunCleanupServer) error {
	whatIf, err := whatIfValues(in.GetWhatIf())
	if err != nil {
		return err
	}
	id, err := parseRequestID(in.GetRequestId())
	if err != nil {
		return err
	}
	req := runs.Request{
		ID:              id,
		Tasks:           in.GetTasks(),
		SkipTasks:       in.GetSkipTasks(),
		DryRun:          in.GetDryRun(),
		ContinueOnError: in.GetContinueOnError(),
		MaxDuration:     parseMaxDuration(in.GetMaxDuration()),
		RequestedBy:     access.FromContext(stream.Context()).String(),
		ByViewer:        access.FromContext(stream.Context()).Role < access.Operator,
		Plan:            in.GetPlan(),
		WhatIf:          whatIf,
		Accepted:        acceptedGuards(in.GetAcceptGuards()),
		PauseStopsClock: in.GetPauseStopsClock(),
		Undo:            parseUndo(in.GetUndo()),
	}
	if req.Pace, err = parsePace("pace", in.GetPace()); err != nil {
		return err
	}
	run, err := s.runs.Start(stream.Context(), req)
	if err != nil {
		return err
	}
	audit.Settle(stream.Context(), codes.OK.String())
	w := watcher{s.runs, s.stopping, stream, in.GetDetach()}
	return w.watch(stream.Context(), run.ID, store.Place{})
}

func (s *Service) WatchRun(in *cleanupv1.WatchRunRequest, stream cleanupv1.CleanupService_WatchRunServer) error {
	after := store.Place{Sequence: in.GetAfterSequence(), Generation: in.GetLogGeneration()}
	switch {
	case after.Sequence < 0:
		return failure.Field("after_sequence", "must not be negative")
	case after.Generation < 0:
		return failure.Field("log_generation", "must not be negative")
	}
	return watcher{s.runs, s.stopping, stream, false}.watch(stream.Context(), in.GetRunId(), after)
}

var (
	errDetached = errors.New("the caller has detached")
	errStopping = status.Error(codes.Unavailable,
		"this replica is shutting down: watch the run on another replica, from the last sequence on")
)

type watcher struct {
	runs     *runs.Manager
	stopping context.Context // done when the stream has to end
	stream   grpc.ServerStream
	detach   bool // whether the stream ends after the first event
}

// watch sends the events of a run. If the run did not succeed, it returns the status of the run as error.
func (w watcher) watch(ctx context.Context, id string, after store.Place) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.stopping, func() { cancel(errStopping) })()
	// A paused run may have no event for hours, so the header tells the client that the call was accepted.
	if err := w.stream.SendHeader(nil); err != nil {
		return err
	}
	w.runs.Follow(id)
	run, err := w.runs.Watch(ctx, id, after, func(e store.Event) error {
		message, err := encode(e)
		if err != nil {
			return err
		}
		if err := w.stream.SendMsg(message); err != nil {
			return err
		}
		if w.detach {
			return errDetached
		}
		return nil
	})
	switch {
	case errors.Is(err, errDetached):
		return nil
	case errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errStopping):
		return errStopping
	case err != nil:
		return err
	}
	return runStatus(run)
}

// encode encodes an event once for all its watchers. RunCleanupResponse and WatchRunResponse are the same on the wire.
func encode(e store.Event) (transport.Encoded, error) {
	message, err := e.Once(func() (any, error) {
		return transport.Encode(&cleanupv1.WatchRunResponse{Event: eventMessage(e)})
	})
	if err != nil {
		return nil, err
	}
	return message.(transport.Encoded), nil
}

// runStatus returns nil if the run succeeded.
func runStatus(r *store.Run) error {
	if r.State == store.Succeeded {
		return nil
	}
	code, reason := codes.Internal, "RUN_FAILED"
	switch r.Cause {
	case store.CauseCancelled:
		code, reason = codes.Canceled, "RUN_CANCELLED"
	case store.CauseNotCampaign:
		code = codes.FailedPrecondition
	case store.CauseUnavailable:
		code = codes.Unavailable
	}
	if refused := r.Reason(); refused != "" {
		code, reason = codes.FailedPrecondition, refused
	}
	metadata := map[string]string{"run_id": r.ID, "task": r.FailedTask()}
	if t := r.Result(metadata["task"]); t != nil {
		maps.Copy(metadata, t.Metadata)
	}
	return transport.StatusWithInfo(code, r.Error, reason, metadata)
}

func (s *Service) GetRun(ctx context.Context, in *cleanupv1.GetRunRequest) (*cleanupv1.GetRunResponse, error) {
	run, err := s.runs.Get(ctx, in.GetRunId())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.GetRunResponse{Run: runMessage(run)}, nil
}

func (s *Service) ListRuns(ctx context.Context, in *cleanupv1.ListRunsRequest) (*cleanupv1.ListRunsResponse, error) {
	size, err := parsePageSize(in.GetPageSize(), MaxRuns)
	if err != nil {
		return nil, err
	}
	view, err := parseView(in)
	if err != nil {
		return nil, err
	}
	filter, err := parseFilter(in)
	if err != nil {
		return nil, err
	}
	list, next, err := s.runs.List(ctx, view, filter, size, in.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListRunsResponse{NextPageToken: next}
	for _, run := range list {
		out.Runs = append(out.Runs, runMessage(run))
	}
	return out, nil
}

func parseView(in *cleanupv1.ListRunsRequest) (store.View, error) {
	switch in.GetView() {
	case cleanupv1.RunView_RUN_VIEW_UNSPECIFIED, cleanupv1.RunView_RUN_VIEW_BASIC:
		return store.Basic, nil
	case cleanupv1.RunView_RUN_VIEW_FULL:
		return store.Full, nil
	}
	return "", failure.Field("view", "must be RUN_VIEW_BASIC or RUN_VIEW_FULL")
}

func parseFilter(in *cleanupv1.ListRunsRequest) (f store.Filter, err error) {
	if in.State != nil {
		name, known := cleanupv1.RunState_name[int32(in.GetState())]
		if !known || in.GetState() == cleanupv1.RunState_RUN_STATE_UNSPECIFIED {
			return f, failure.Field("state", "must be the state of a run, such as RUN_STATE_FAILED")
		}
		f.State = store.State(strings.TrimPrefix(name, "RUN_STATE_"))
	}
	f.Task, f.DryRun = in.GetTask(), in.DryRun
	if f.From, err = parseTime("created_from_time", in.GetCreatedFromTime()); err != nil {
		return f, err
	}
	f.Before, err = parseTime("created_before_time", in.GetCreatedBeforeTime())
	return f, err
}

func (s *Service) CancelRun(ctx context.Context, in *cleanupv1.CancelRunRequest) (*cleanupv1.CancelRunResponse, error) {
	if err := mayCancel(ctx, s.runs, in.GetRunId()); err != nil {
		return nil, err
	}
	run, err := s.runs.Cancel(ctx, in.GetRunId())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.CancelRunResponse{Run: runMessage(run)}, nil
}

// mayCancel allows viewers to cancel only dry runs that they started.
func mayCancel(ctx context.Context, manager *runs.Manager, id string) error {
	who := access.FromContext(ctx)
	if who.Role >= access.Operator {
		return nil
	}
	run, err := manager.Get(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err == nil && run.DryRun && run.RequestedBy == who.String() {
		return nil
	}
	return status.Errorf(codes.PermissionDenied,
		"CleanupService/CancelRun needs the role %s, except for dry runs of one's own", access.Operator)
}

func (s *Service) SetPace(ctx context.Context, in *cleanupv1.SetPaceRequest) (*cleanupv1.SetPaceResponse, error) {
	to, err := parsePace("pace", in.GetPace())
	if err != nil {
		return nil, err
	}
	if to == "" {
		return nil, failure.Field("pace", "is missing: give one of "+paceNames())
	}
	run, err := s.runs.SetPace(ctx, in.GetRunId(), to, access.FromContext(ctx).String())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.SetPaceResponse{Run: runMessage(run)}, nil
}

func (s *Service) PauseRun(ctx context.Context, in *cleanupv1.PauseRunRequest) (*cleanupv1.PauseRunResponse, error) {
	run, err := s.runs.Pause(ctx, in.GetRunId(), access.FromContext(ctx).String())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.PauseRunResponse{Run: runMessage(run)}, nil
}

func (s *Service) ResumeRun(ctx context.Context, in *cleanupv1.ResumeRunRequest) (*cleanupv1.ResumeRunResponse, error) {
	run, err := s.runs.Resume(ctx, in.GetRunId(), access.FromContext(ctx).String())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.ResumeRunResponse{Run: runMessage(run)}, nil
}

const pacePrefix = "PACE_"

// parsePace returns "" if no pace is given.
func parsePace(field string, p cleanupv1.Pace) (pace.Pace, error) {
	name, known := cleanupv1.Pace_name[int32(p)]
	switch {
	case p == cleanupv1.Pace_PACE_UNSPECIFIED:
		return "", nil
	case !known:
		return "", failure.Field(field, "must be "+paceNames())
	}
	return pace.Pace(strings.TrimPrefix(name, pacePrefix)), nil
}

func paceNames() string {
	var names []string
	for _, p := range pace.Paces {
		names = append(names, pacePrefix+string(p))
	}
	return strings.Join(names, ", ")
}

func (s *Service) ListTasks(ctx context.Context, in *cleanupv1.ListTasksRequest) (*cleanupv1.ListTasksResponse, error) {
	p, err := s.runs.Tasks.Read(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(p.Tasks, in.GetPageSize(), in.GetPageToken(), func(t rules.Task) string { return t.Name })
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListTasksResponse{NextPageToken: next}
	for _, t := range page {
		out.Tasks = append(out.Tasks, &cleanupv1.Task{
			Name:        t.Name,
			Kind:        enumOf[cleanupv1.TaskKind](t.Kind.String()),
			Title:       t.Title,
			Description: t.Description,
			Options:     t.OptionNames(),
			DependsOn:   t.Requires,
			Disabled:    p.Disabled(t.Name),
		})
	}
	return out, nil
}
