package transport

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/mysqlerr"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// domain is the domain of the ErrorInfo in error details.
const domain = "cleanupd"

var codeOf = map[failure.Kind]codes.Code{
	failure.Internal:     codes.Internal,
	failure.Invalid:      codes.InvalidArgument,
	failure.NotFound:     codes.NotFound,
	failure.Conflict:     codes.Aborted,
	failure.Precondition: codes.FailedPrecondition,
	failure.Exhausted:    codes.ResourceExhausted,
	failure.Unavailable:  codes.Unavailable,
	failure.DataLoss:     codes.DataLoss,
}

// toStatus turns an error of a call into a status; ctx must be that of the call.
func toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var kinded failure.Kinded
	switch {
	case errors.As(err, &kinded):
		return kindedStatus(kinded, err)
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return status.FromContextError(ctx.Err()).Err()
	case sqlstate.Lost(err), mysqlerr.Lost(err): // including our own timeouts
		return hideCause(codes.Unavailable, "the database does not answer: try again", err)
	case sqlstate.Is(err, pgerrcode.QueryCanceled):
		return hideCause(codes.Unavailable, "the database takes too long: try again", err)
	case sqlstate.Is(err, pgerrcode.LockNotAvailable):
		return hideCause(codes.Unavailable, "the rows are locked by another session: try again", err)
	case sqlstate.Is(err, pgerrcode.UntranslatableCharacter), sqlstate.Is(err, pgerrcode.CharacterNotInRepertoire):
		return status.Error(codes.InvalidArgument,
			"a text of the request has a character that the encoding of the database lacks: "+validText(err.Error()))
	case sqlstate.Is(err, pgerrcode.InsufficientPrivilege), mysqlerr.Denied(err):
		return status.Error(codes.FailedPrecondition,
			"the service's database role lacks a right: "+validText(sqlstate.Text(err)))
	}
	return hideCause(codes.Internal, "an unexpected error", err)
}

func kindedStatus(kinded failure.Kinded, err error) error {
	code := codeOf[kinded.Kind()]
	switch kinded := kinded.(type) {
	case failure.Violations:
		return invalidStatus(kinded)
	case *failure.FieldError:
		return invalidStatus(failure.Violations{{Field: kinded.Field, Problem: err.Error()}})
	case failure.Informed:
		reason, metadata := kinded.Info()
		return StatusWithInfo(code, err.Error(), reason, metadata)
	}
	return status.Error(code, validText(err.Error()))
}

func invalidStatus(violations failure.Violations) error {
	violations = violations.Brief()
	details := &errdetails.BadRequest{}
	for _, v := range violations {
		details.FieldViolations = append(details.FieldViolations,
			&errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Problem})
	}
	return withDetails(codes.InvalidArgument, violations.Error(), details)
}

// hiddenCause is an error whose cause is only written to the log.
type hiddenCause struct {
	status *status.Status
	cause  error
}

// hideCause returns an error whose message says how to find the cause in the log: by the id of the call.
func hideCause(code codes.Code, message string, cause error) error {
	return &hiddenCause{
		status.New(code,
			message+" (the server's log says more, with the "+requestHeader+" that is a header of this answer)"),
		cause,
	}
}

func (e *hiddenCause) Unwrap() error { return e.cause }

func (e *hiddenCause) Error() string { return e.status.Message() }

func (e *hiddenCause) GRPCStatus() *status.Status { return e.status }

func StatusWithInfo(code codes.Code, message, reason string, metadata map[string]string) error {
	return withDetails(code, message, &errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: metadata})
}

func withDetails(code codes.Code, message string, detail protoadapt.MessageV1) error {
	replaceInvalid(protoadapt.MessageV2Of(detail))
	s, err := status.New(code, validText(message)).WithDetails(detail)
	if err != nil { // the detail cannot be encoded, and a status without it is better than none
		return status.Error(code, message)
	}
	return s.Err()
}

// Encoded is a message in wire format, which a stream may send in place of the message.
type Encoded []byte

func Encode(message protobuf.Message) (Encoded, error) {
	raw, err := marshal(message, protobuf.Marshal)
	return Encoded(raw), err
}

// codec sends and receives Encoded messages unchanged.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(Encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	message, ok := v.(protobuf.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return marshal(message, func(m protobuf.Message) (mem.BufferSlice, error) { return c.CodecV2.Marshal(m) })
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*Encoded); ok {
		*raw = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

func passEncoded() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

// marshal replaces bytes that are not valid UTF-8, because protobuf rejects them. They occur in texts of a database
// without an encoding (SQL_ASCII), and in messages of a server before the connection has an encoding.
func marshal[Wire any](m protobuf.Message, by func(m protobuf.Message) (Wire, error)) (Wire, error) {
	wire, err := by(m)
	if err == nil {
		return wire, nil
	}
	m = protobuf.Clone(m)
	replaceInvalid(m)
	return by(m)
}

func replaceInvalid(m protobuf.Message) {
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		value, in, step := p.Index(-1).Value, p.Index(-2).Value, p.Index(-1).Step
		text, ok := value.Interface().(string)
		invalid := ok && !utf8.ValidString(text)
		if invalid {
			value = protoreflect.ValueOfString(validText(text))
		}
		switch step.Kind() {
		case protopath.FieldAccessStep:
			if invalid {
				in.Message().Set(step.FieldDescriptor(), value)
			}
		case protopath.ListIndexStep:
			if invalid {
				in.List().Set(step.ListIndex(), value)
			}
		case protopath.MapIndexStep:
			key := step.MapIndex()
			if name, ok := key.Interface().(string); ok && !utf8.ValidString(name) {
				in.Map().Clear(key)
				key, invalid = protoreflect.ValueOfString(validText(name)).MapKey(), true
			}
			if invalid {
				in.Map().Set(key, value)
			}
		}
		return nil
	})
}

func validText(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }
