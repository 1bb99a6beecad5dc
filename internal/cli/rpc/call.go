package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/flags"
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

// completionTimeout limits how long a shell waits for what can be typed.
const completionTimeout = time.Second

// Complete returns a completion that asks the server what can be typed, and offers nothing if it does not answer in
// time. It offers no names of files.
func Complete[C any](
	server *Server, newClient func(grpc.ClientConnInterface) C,
	ask func(ctx context.Context, client C) ([]cobra.Completion, error),
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, err := complete(cmd, server, newClient, ask)
		if err != nil { // nothing may be printed between what the user types
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list = slices.DeleteFunc(list, func(c cobra.Completion) bool { return !strings.HasPrefix(c, typed) })
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func complete[C any](
	cmd *cobra.Command, server *Server, newClient func(grpc.ClientConnInterface) C,
	ask func(ctx context.Context, client C) ([]cobra.Completion, error),
) ([]cobra.Completion, error) {
	if err := flags.ReadEnvironment(cmd.Flags()); err != nil { // which cobra does not do for a completion
		return nil, err
	}
	if _, err := server.useContext(cmd); err != nil {
		return nil, err
	}
	conn, err := server.Dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	return ask(ctx, newClient(conn))
}
