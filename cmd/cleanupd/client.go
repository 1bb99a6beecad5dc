package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs"
)

// withConn turns a function that needs a connection to the server into that of a command.
func withConn(
	server *target,
	do func(cmd *cobra.Command, conn *grpc.ClientConn, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		conn, err := server.dial()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return plain(server.explained(do(cmd, conn, args)))
	}
}

// explained is an error of a call. If another run is active, it says how to watch that; if no server answered, which
// one, and what may be wrong with the address.
func (t *target) explained(err error) error {
	s, ok := status.FromError(err)
	for _, detail := range s.Details() {
		if info, _ := detail.(*errdetails.ErrorInfo); info.GetReason() == runs.RunActive {
			return status.Errorf(
				s.Code(),
				"%s; %s shows it",
				s.Message(),
				t.command("runs watch", info.GetMetadata()["run_id"]),
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
	return status.Errorf(codes.Unavailable, "cannot reach %s: %s%s", t.address, s.Message(), hint)
}

// withClient is withConn for a function that needs a client of CleanupService.
func withClient(
	server *target,
	do func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error,
) func(*cobra.Command, []string) error {
	return withConn(server, func(cmd *cobra.Command, conn *grpc.ClientConn, args []string) error {
		return do(cmd, cleanupv1.NewCleanupServiceClient(conn), args)
	})
}

// plain is an error of a call for people. An invalid argument is a usage error.
func plain(err error) error {
	s, ok := status.FromError(err)
	switch {
	case !ok || err == nil:
		return err
	case s.Code() == codes.InvalidArgument:
		return usagef("%s", s.Message())
	}
	return errors.New(s.Message())
}

// word is the name of an enum's value, without what all its names begin with, in lower case.
func word(value protoreflect.Enum) string {
	names := value.Descriptor().Values()
	prefix := strings.TrimSuffix(string(names.ByNumber(0).Name()), "UNSPECIFIED")
	name := names.ByNumber(value.Number())
	if name == nil { // of a newer server
		return fmt.Sprint(value.Number())
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(string(name.Name()), prefix), "_", " "))
}
