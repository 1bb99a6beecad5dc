package rpc

import (
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/runs"
)

// explained is an error of a call. If another run is active, it says how to watch that; if no server answered, which
// one, and what may be wrong with the address.
func (t *Server) explain(err error) error {
	s, ok := status.FromError(err)
	for _, detail := range s.Details() {
		if info, _ := detail.(*errdetails.ErrorInfo); info.GetReason() == runs.RunActive {
			return status.Errorf(
				s.Code(),
				"%s; %s shows it",
				s.Message(),
				t.Command("runs watch", info.GetMetadata()["run_id"]),
			)
		}
	}
	if !ok || s.Code() != codes.Unavailable ||
		(!strings.HasPrefix(s.Message(), "connection error: ") &&
			!strings.HasPrefix(s.Message(), "name resolver error: ")) {
		return err
	}
	hint := ""
	if strings.Contains(s.Message(), "server preface") {
		hint = " (is it the gRPC address, and does the server speak TLS: --tls, --tls-ca?)"
	}
	return status.Errorf(codes.Unavailable, "cannot reach %s: %s%s", t.Address, s.Message(), hint)
}

// plain is an error of a call for people. An invalid argument is a usage error.
func PlainError(err error) error {
	s, ok := status.FromError(err)
	switch {
	case !ok || err == nil:
		return err
	case s.Code() == codes.InvalidArgument:
		return flags.Errorf("%s", s.Message())
	}
	return errors.New(s.Message())
}
