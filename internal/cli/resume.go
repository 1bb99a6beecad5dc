package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// makeWay lets a run start that failed with an error, by resuming the interrupted run that is in its way, or cancelling
// interrupted dry runs. It returns how the resumed run ended. It fails if the run cannot start now.
func makeWay(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, failed error, p watch.Printer,
) (resumed, err error) {
	if run := obstacle(cmd.Context(), server, client, failed); run != nil {
		resumed = resume(cmd, server, client, run, p)
		if cmd.Context().Err() != nil {
			return nil, resumed
		}
		return resumed, nil
	}
	switch cancelled, err := cancelInterrupted(cmd, server, client, failed); {
	case err != nil:
		return nil, errors.Join(failed, err)
	case !cancelled: // not joined, which would hide its status
		return nil, failed
	}
	return nil, nil
}

// obstacle returns the run that nobody has and that therefore keeps others from starting: err says that it is active.
// It is nil with a server, which resumes such a run by itself.
func obstacle(ctx context.Context, server *rpc.Server, client cleanupd.Client, err error) *cleanupv1.Run {
	if !server.InProcess() {
		return nil
	}
	for _, detail := range status.Convert(err).Details() {
		info, _ := detail.(*errdetails.ErrorInfo)
		if info.GetReason() != store.RunActive {
			continue
		}
		got, err := client.GetRun(ctx, &cleanupv1.GetRunRequest{RunId: info.GetMetadata()["run_id"]})
		run := got.GetRun()
		if err == nil && (run.GetInterrupted() || run.GetState() == cleanupv1.RunState_RUN_STATE_QUEUED) {
			return run
		}
	}
	return nil
}

// resume follows a run, which makes the server in this process execute it.
func resume(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, run *cleanupv1.Run, p watch.Printer,
) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "Run %s of %s was interrupted, and is resumed first.\n", run.GetId(),
		format.Time(run.GetCreateTime()))
	stream, err := client.WatchRun(cmd.Context(), &cleanupv1.WatchRunRequest{RunId: run.GetId()})
	if err == nil {
		err = watch.NewRun(cmd.Context(), server, client, stream).Follow(p)
	}
	if err != nil {
		err = fmt.Errorf("the resumed run %s: %w", run.GetId(), err)
	}
	return err
}

// cancelInterrupted cancels dry runs that nobody has if err says that there are too many. What they have counted is of
// no use, since resuming one counts its current table again. It reports whether it cancelled any.
func cancelInterrupted(cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, err error) (bool, error) {
	if !server.InProcess() || status.Code(err) != codes.ResourceExhausted {
		return false, nil
	}
	dryRuns, err := interruptedRuns(cmd.Context(), client, true)
	for _, run := range dryRuns {
		if _, err := client.CancelRun(cmd.Context(), &cleanupv1.CancelRunRequest{RunId: run.GetId()}); err != nil {
			return false, err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Cancelled the dry run %s of %s, which was interrupted.\n", run.GetId(),
			format.Time(run.GetCreateTime()))
	}
	return len(dryRuns) > 0, err
}

// printInterrupted prints, before the user is asked, that an interrupted run is resumed first.
func printInterrupted(cmd *cobra.Command, server *rpc.Server, client cleanupd.Client) error {
	if !server.InProcess() {
		return nil
	}
	runs, err := interruptedRuns(cmd.Context(), client, false)
	for _, run := range runs {
		rpc.PrintFact(cmd.ErrOrStderr(), "First", fmt.Sprintf("run %s of %s, which was interrupted, is resumed",
			run.GetId(), format.Time(run.GetCreateTime())))
	}
	return err
}

func interruptedRuns(ctx context.Context, client cleanupd.Client, dryRuns bool) (list []*cleanupv1.Run, err error) {
	active, err := client.ListRuns(ctx, &cleanupv1.ListRunsRequest{
		State: cleanupv1.RunState_RUN_STATE_RUNNING.Enum(), DryRun: &dryRuns,
	})
	for _, run := range active.GetRuns() {
		if run.GetInterrupted() {
			list = append(list, run)
		}
	}
	return list, err
}
