package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// withConn turns a function that needs a connection to the server into that of a command.
func withConn(server *target, do func(cmd *cobra.Command, conn *grpc.ClientConn, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		conn, err := server.dial()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return plain(server.reached(do(cmd, conn, args)))
	}
}

// reached is an error of a call. If no server answered, it says which one, and what may be wrong with the address.
func (t *target) reached(err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable || !strings.HasPrefix(s.Message(), "connection error: ") && !strings.HasPrefix(s.Message(), "name resolver error: ") {
		return err
	}
	hint := ""
	if strings.Contains(s.Message(), "server preface") {
		hint = " (is it the gRPC address, and does the server speak TLS: --tls, --tls-ca?)"
	}
	return status.Errorf(codes.Unavailable, "cannot reach %s: %s%s", t.address, s.Message(), hint)
}

// withClient is withConn for a function that needs a client of CleanupService.
func withClient(server *target, do func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error) func(*cobra.Command, []string) error {
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

// stateName is an enum value without its prefix, in lower case.
func stateName(prefix string, value fmt.Stringer) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(value.String(), prefix), "_", " "))
}
