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

// explain returns one error for each field that the server refuses. It names the policy and its place in the file.
func (e entry) explain(err error) error {
	s, where := status.Convert(err), fmt.Sprintf("%s: policy %s: ", e.where, e.policy.GetName())
	switch s.Code() {
	case codes.InvalidArgument:
	case codes.FailedPrecondition:
		return errors.New(where + s.Message())
	default:
		return err
	}
	var wrong []error
	for _, detail := range s.Details() {
		bad, _ := detail.(*errdetails.BadRequest)
		for _, v := range bad.GetFieldViolations() {
			wrong = append(wrong, flags.Errorf("%s%s%s", where, FieldPath(v.GetField()), v.GetDescription()))
		}
	}
	if wrong == nil {
		wrong = append(wrong, flags.Errorf("%s%s", where, s.Message()))
	}
	return errors.Join(wrong...)
}

// FieldPath returns the path as it is written in a file, such as `olderThan.days: `; "" for the policy itself.
func FieldPath(field string) string {
	path := strings.TrimPrefix(strings.TrimPrefix(field, "policy"), ".")
	if path == "" {
		return ""
	}
	var names []string
	for part := range strings.SplitSeq(path, ".") {
		names = append(names, format.FieldName(part))
	}
	return strings.Join(names, ".") + ": "
}
