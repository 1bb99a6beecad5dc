// Command cleanupd keeps a Campaign database from growing without end.
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

	"google.golang.org/grpc/grpclog"

	"github.com/cleanupd/cleanupd/internal/cli"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

func main() {
	// what becomes of each call is in the service's own log
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// interrupted is the exit status of a command that was interrupted, as by Ctrl-C: as shells have it.
const interrupted = 130

// run is the whole program. It returns the exit status: 0 for success, 2 for a mistake on the command line, 130 for a
// command that was interrupted, otherwise 1.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(cli.ProtectNegativeKey(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetUsageTemplate(
		strings.ReplaceAll(
			root.UsageTemplate(),
			"FlagUsages",
			fmt.Sprintf("FlagUsagesWrapped %d", terminal.ScreenOf(stdout).Width()),
		),
	)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	for _, problem := range problems(err) {
		fmt.Fprintln(stderr, "cleanupd:", terminal.OneLine(problem.Error()))
	}
	var mistake *flags.Error
	switch {
	case errors.As(err, &mistake):
		return 2
	case ctx.Err() != nil:
		return interrupted
	}
	return 1
}

// problems are the errors that one joins, or it alone.
func problems(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // one that wraps a joined error has a text of its own
	if !ok {
		return []error{err}
	}
	for _, problem := range joined.Unwrap() {
		all = append(all, problems(problem)...)
	}
	return all
}
