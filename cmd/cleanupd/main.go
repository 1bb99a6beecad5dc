// Command cleanupd deletes obsolete rows of PostgreSQL databases, and erases one person's data in AEM Forms. It
// contains the server and the commands that are its clients. This package parses the command line; internal/serve,
// internal/cli and internal/demo have the commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"github.com/cleanupd/cleanupd/internal/cli"
	"github.com/cleanupd/cleanupd/internal/cli/policies"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

func main() {
	// the service logs its calls itself
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// These are exit statuses besides 0 for success and 1 for failure.
const (
	exitUsage       = 2
	exitDiffers     = 3   // the stored policies differ from a file
	exitInterrupted = 130 // as shells report Ctrl-C
)

// The functions of cobra's templates are global.
func init() { cobra.AddTemplateFunc("flagUsages", flags.Usages) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(cli.ProtectNegativeKey(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	width := terminal.ScreenOf(stdout).Width()
	root.SetUsageTemplate(strings.NewReplacer(
		"Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", fmt.Sprintf("{{flagUsages .LocalFlags %d}}", width),
		".InheritedFlags.FlagUsages", fmt.Sprintf(".InheritedFlags.FlagUsagesWrapped %d", width),
	).Replace(root.UsageTemplate()))
	err := root.ExecuteContext(rpc.WithStarter(ctx, startInProcess))
	if err == nil {
		return 0
	}
	for _, err := range split(err) {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(stderr, "cleanupd:", terminal.OneLine(sqlstate.Text(err)))
		if long := (interface{ Lines() []string })(nil); errors.As(err, &long) {
			for _, line := range long.Lines() {
				fmt.Fprintln(stderr, terminal.Printable(line))
			}
		}
	}
	var mistake *flags.Error
	switch {
	case errors.As(err, &mistake):
		return exitUsage
	case errors.Is(err, policies.ErrDiffers):
		return exitDiffers
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return 1
}

func startInProcess(
	ctx context.Context, databaseURL string, create bool, w io.Writer,
) (rpc.OwnServer, error) {
	server, err := serve.StartInProcess(ctx, databaseURL, create, w)
	if err != nil {
		return nil, err
	}
	return server, nil
}

func split(err error) (errs []error) {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // one that wraps it has its own text
	if !ok {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		errs = append(errs, split(err)...)
	}
	return errs
}
