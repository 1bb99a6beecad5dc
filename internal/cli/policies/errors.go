package policies

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/flags"
)

// isRefusal reports whether the server refuses a policy. Any other error would be the same for the next policy.
func isRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.FailedPrecondition
}

// explain returns one error for each field that the server refuses. It names the policy and the field's place in the
// file.
func (e entry) explain(err error) error {
	s := status.Convert(err)
	at := func(path string) string { return fmt.Sprintf("%s: policy %s: ", e.where(path), e.policy.GetName()) }
	switch s.Code() {
	case codes.InvalidArgument:
	case codes.FailedPrecondition:
		return errors.New(at("") + s.Message())
	default:
		return err
	}
	var wrong []error
	for _, detail := range s.Details() {
		bad, _ := detail.(*errdetails.BadRequest)
		for _, v := range bad.GetFieldViolations() {
			path := FieldPath(v.GetField())
			text := at(path)
			if path != "" {
				text += path + ": "
			}
			wrong = append(wrong, flags.Errorf("%s%s", text, v.GetDescription()))
		}
	}
	if wrong == nil {
		wrong = append(wrong, flags.Errorf("%s%s", at(""), s.Message()))
	}
	return errors.Join(wrong...)
}

// FieldPath returns the path as it is written in a file, such as `olderThan.days`; "" for the policy itself.
func FieldPath(field string) string {
	var names []string
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(field, "policy"), "."), ".") {
		names = append(names, format.FieldName(part))
	}
	return strings.Join(names, ".")
}
