package rpc

import (
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// CleanupClient is a client of CleanupService.
type CleanupClient = cleanupv1.CleanupServiceClient

// UserDataClient is a client of UserDataService.
type UserDataClient = cleanupv1.UserDataServiceClient

// WithCleanup returns a command's function that calls do with a client of CleanupService.
func WithCleanup(
	server *Server, do func(cmd *cobra.Command, client CleanupClient, args []string) error,
) func(*cobra.Command, []string) error {
	return with(server, cleanupv1.NewCleanupServiceClient, do)
}

// WithUserData returns a command's function that calls do with a client of UserDataService.
func WithUserData(
	server *Server, do func(cmd *cobra.Command, client UserDataClient, args []string) error,
) func(*cobra.Command, []string) error {
	return with(server, cleanupv1.NewUserDataServiceClient, do)
}

func with[C any](
	server *Server, newClient func(grpc.ClientConnInterface) C,
	do func(cmd *cobra.Command, client C, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		notice, err := server.useContext(cmd)
		if err != nil {
			return err
		}
		conn, err := server.Dial()
		if err != nil {
			return err
		}
		if notice != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), notice)
		}
		defer func() { _ = conn.Close() }()
		return PlainError(nameFields(cmd, server.Explain(do(cmd, newClient(conn), args))))
	}
}
