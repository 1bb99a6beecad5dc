package service

import (
	"context"
	"errors"
	"maps"
	"strconv"

	"github.com/jackc/pgerrcode"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/explain"
	"github.com/cleanupd/cleanupd/tasks/refused"
	"github.com/cleanupd/cleanupd/userdata"
)

// domain names this service in error details.
const domain = "cleanupd"

// RunActive is the ErrorInfo reason of a run that is refused since another one is active, which run_id names.
const RunActive = "RUN_ACTIVE"

// LogReplaced is the ErrorInfo reason of a stream that has sent events which the database lost.
const LogReplaced = "LOG_REPLACED"

// errStaleEtag says that the options have changed since the caller read them.
var errStaleEtag = errors.New("the options have changed since this etag was read: read them again")

// toStatus is the only place where errors become statuses. The context is that of the call.
func toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var (
		invalid runs.InvalidError
		active  *runs.ActiveError
		lost    *runs.ReplacedError
		purge   userdata.WrongError

		refused *refused.Error

		panicked *rescue.Panic
		squatted *advisory.SquattedError
	)
	switch {
	case errors.As(err, &invalid):
		invalid = invalid.Brief()
		violations := &errdetails.BadRequest{}
		for _, v := range invalid {
			violations.FieldViolations = append(
				violations.FieldViolations,
				&errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Problem},
			)
		}
		return withDetails(codes.InvalidArgument, invalid.Error(), violations)
	case errors.As(err, &active):
		return withDetails(codes.Aborted, err.Error(), &errdetails.ErrorInfo{
			Reason: RunActive, Domain: domain, Metadata: map[string]string{"run_id": active.RunID},
		})
	case errors.As(err, &lost):
		return withDetails(codes.DataLoss, err.Error(), &errdetails.ErrorInfo{
			Reason: LogReplaced,
			Domain: domain,
			Metadata: map[string]string{
				"run_id":         lost.RunID,
				"after_sequence": strconv.FormatInt(lost.AfterSequence, 10),
			},
		})
	case errors.As(err, &refused):
		return withDetails(
			codes.FailedPrecondition,
			err.Error(),
			&errdetails.ErrorInfo{Reason: refused.Reason, Domain: domain, Metadata: refused.Metadata},
		)
	case errors.Is(err, runs.ErrTooManyDryRuns):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, runs.ErrNotFound), errors.Is(err, runs.ErrNoHold), errors.Is(err, runs.ErrNoTask):
		return status.Error(codes.NotFound, err.Error())
	case errors.As(err, &purge):
		for _, p := range purge {
			invalid = append(invalid, runs.Violation{Field: "purge." + p.Field, Problem: p.Problem})
		}
		return toStatus(ctx, invalid)
	case errors.Is(err, userdata.ErrNoVariable),
		errors.Is(err, userdata.ErrNoReceipt),
		errors.Is(err, userdata.ErrNoPurge):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, userdata.ErrNotPrincipal):
		return toStatus(ctx, runs.InvalidError{{Field: "principal_ids", Problem: err.Error()}})
	case errors.Is(err, userdata.ErrNotForms),
		errors.Is(err, userdata.ErrManyPrincipals),
		errors.Is(err, userdata.ErrNoStorage),
		errors.Is(err, userdata.ErrUnfinished):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, userdata.ErrNotUser):
		return toStatus(ctx, runs.InvalidError{{Field: "user_id", Problem: err.Error()}})
	case errors.Is(err, runs.ErrPageToken), errors.Is(err, userdata.ErrPageToken):
		return toStatus(ctx, runs.InvalidError{{Field: "page_token", Problem: err.Error()}})
	case errors.Is(err, explain.ErrKey):
		return toStatus(ctx, runs.InvalidError{{Field: "key", Problem: err.Error()}})
	case errors.Is(err, errStaleEtag), errors.Is(err, userdata.ErrStalePurge):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, campaign.ErrNotCampaign), errors.Is(err, campaign.ErrNoOptionTable):
		return status.Error(codes.FailedPrecondition, err.Error())
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return status.FromContextError(ctx.Err()).Err()
	case sqlstate.Lost(err), userdata.Lost(err): // including timeouts of our own
		return withCause(codes.Unavailable, "the database does not answer: try again", err)
	case errors.As(err, &squatted):
		return status.Error(codes.Unavailable, squatted.Error())
	case sqlstate.Is(err, pgerrcode.QueryCanceled):
		return withCause(codes.Unavailable, "the database takes too long: try again", err)
	case sqlstate.Is(err, pgerrcode.LockNotAvailable):
		return withCause(codes.Unavailable, "the rows are locked by someone: try again", err)
	case sqlstate.Is(err, pgerrcode.UntranslatableCharacter), sqlstate.Is(err, pgerrcode.CharacterNotInRepertoire):
		return status.Error(
			codes.InvalidArgument,
			"a text of the request has a character that the encoding of the database lacks: "+validText(err.Error()),
		)
	case sqlstate.Is(err, pgerrcode.InsufficientPrivilege), userdata.Denied(err):
		return status.Error(codes.FailedPrecondition, "the service's database role lacks a right: "+err.Error())
	case errors.As(err, &panicked):
		return status.Error(codes.Internal, panicked.Error())
	}
	return withCause(codes.Internal, "an unexpected error", err)
}

// unexpected is a status whose cause is for the log alone.
type unexpected struct {
	status *status.Status
	cause  error
}

// withCause is a status that does not tell its cause, but where it is told: in the log, with the id of the call.
func withCause(code codes.Code, message string, cause error) error {
	return &unexpected{
		status.New(
			code,
			message+" (the server's log says more, with the "+requestHeader+" that is a header of this answer)",
		),
		cause,
	}
}

// Unwrap returns the cause.
func (e *unexpected) Unwrap() error { return e.cause }

// Error implements error.
func (e *unexpected) Error() string { return e.status.Message() }

// GRPCStatus is what the caller is told.
func (e *unexpected) GRPCStatus() *status.Status { return e.status }

// runStatus is how the stream of a run ends: nil when the run succeeded.
func runStatus(r *runs.Run) error {
	if r.State == runs.Succeeded {
		return nil
	}
	code, reason := codes.Internal, "RUN_FAILED"
	switch r.Cause {
	case runs.CauseCancelled:
		code, reason = codes.Canceled, "RUN_CANCELLED"
	case runs.CauseNotCampaign:
		code = codes.FailedPrecondition
	case runs.CauseUnavailable:
		code = codes.Unavailable
	}
	if refused := r.Reason(); refused != "" {
		code, reason = codes.FailedPrecondition, refused
	}
	metadata := map[string]string{"run_id": r.ID, "task": r.FailedTask()}
	if t := r.Result(metadata["task"]); t != nil {
		maps.Copy(metadata, t.Metadata)
	}
	return withDetails(code, r.Error, &errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: metadata})
}

func withDetails(code codes.Code, message string, detail protoadapt.MessageV1) error {
	replaceInvalid(protoadapt.MessageV2Of(detail).ProtoReflect())
	s, err := status.New(code, validText(message)).WithDetails(detail)
	if err != nil { // the detail cannot be encoded: the status without it is better than none
		return status.Error(code, message)
	}
	return s.Err()
}

func unaryErrors(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	return resp, toStatus(ctx, err)
}

func streamErrors(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return toStatus(stream.Context(), handler(srv, stream))
}
