package rpc

import (
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// withConn turns a function that needs a connection to the server into that of a command.
func WithConn(
	server *Server,
	do func(cmd *cobra.Command, conn *grpc.ClientConn, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		conn, err := server.Dial()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return PlainError(server.explain(do(cmd, conn, args)))
	}
}

// withClient is withConn for a function that needs a client of CleanupService.
func WithClient(
	server *Server,
	do func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error,
) func(*cobra.Command, []string) error {
	return WithConn(server, func(cmd *cobra.Command, conn *grpc.ClientConn, args []string) error {
		return do(cmd, cleanupv1.NewCleanupServiceClient(conn), args)
	})
}
