package rpc

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	"github.com/cleanupd/cleanupd/internal/cli/contexts"
	"github.com/cleanupd/cleanupd/internal/flags"
)

// completionTimeout is how long a shell waits for completions.
const completionTimeout = time.Second

// Source returns what can be typed, with descriptions.
type Source func(ctx context.Context, client cleanupd.Client) ([]cobra.Completion, error)

func CompleteFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, complete) // it fails only for an unknown flag
}

func FirstArgument(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// Complete offers what the server returns, and nothing if it does not answer in time. It never offers names of
// files.
func Complete(server *Server, sources ...Source) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, err := offers(cmd, server, sources)
		if err != nil { // nothing may be printed between what the user types
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list = slices.DeleteFunc(list, func(c cobra.Completion) bool { return !strings.HasPrefix(c, typed) })
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// offers merges the sources; a source that fails offers nothing.
func offers(cmd *cobra.Command, server *Server, sources []Source) (list []cobra.Completion, err error) {
	if err := flags.ReadEnvironment(cmd.Flags()); err != nil { // cobra does not do this for a completion
		return nil, err
	}
	if _, err := server.useContext(cmd); err != nil || server.InProcess() { // pressing Tab must not start a server
		return nil, err
	}
	conn, err := server.Dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	client := cleanupd.NewClient(conn)
	for _, ask := range sources {
		some, err := ask(ctx, client)
		if err == nil {
			list = append(list, some...)
		}
	}
	return list, nil
}

func CompleteContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, err := contexts.Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, name := range file.Names() {
		names = append(names, cobra.CompletionWithDesc(name, file.Contexts[name].Address))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
