package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// follower receives the events of one run.
type follower struct {
	client   cleanupv1.CleanupServiceClient
	patience time.Duration                       // how long it tries to come back to the run
	receive  func() (*cleanupv1.RunEvent, error) // the next event
	// asks for the events after the last one; nil: none came, so the run is not known
	at *cleanupv1.WatchRunRequest
}

// events turns a call that streams events into a function that returns the next one.
func events[M interface{ GetEvent() *cleanupv1.RunEvent }](
	stream interface{ Recv() (M, error) }, err error,
) func() (*cleanupv1.RunEvent, error) {
	return func() (*cleanupv1.RunEvent, error) {
		if err != nil {
			return nil, err
		}
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		return m.GetEvent(), nil
	}
}

// follow shows the events of the run until it has ended, and returns it. An error before that says that it may go on.
func (f *follower) follow(ctx context.Context, show func(*cleanupv1.RunEvent)) (*cleanupv1.Run, error) {
	var lost time.Time // when the connection was lost; zero: it is not
	for {
		event, err := f.receive()
		if err == nil {
			f.at, lost = &cleanupv1.WatchRunRequest{
				RunId:         event.GetRunId(),
				AfterSequence: event.GetSequence(),
				LogGeneration: event.GetLogGeneration(),
			}, time.Time{}
			show(event)
			if ended := event.GetRunFinished(); ended != nil {
				return ended.GetRun(), nil
			}
			continue
		}
		if f.at == nil {
			return nil, err
		}
		switch status.Code(err) {
		case codes.Unavailable:
			if lost.IsZero() {
				lost = time.Now()
				fmt.Fprintf(
					os.Stderr, "The connection is lost, trying for %s to come back to run %s.\n", f.patience,
					f.at.GetRunId(),
				)
			}
			if time.Since(lost) > f.patience {
				return nil, fmt.Errorf("run %s may go on, see --watch: %w", f.at.GetRunId(), err)
			}
			time.Sleep(time.Second)
		case codes.DataLoss:
			f.at.AfterSequence, f.at.LogGeneration = stillThere(err), 0
			fmt.Fprintf(
				os.Stderr, "The database lost the events after the first %d, going on from there.\n",
				f.at.GetAfterSequence(),
			)
		default:
			return nil, err
		}
		f.receive = events(f.client.WatchRun(ctx, f.at))
	}
}

// stillThere returns how many events of the run the database still has, by an error that says that it lost others. Without
// that detail it is 0, from where a run can always be watched.
func stillThere(err error) int64 {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == "LOG_REPLACED" {
			if n, err := strconv.ParseInt(info.GetMetadata()["after_sequence"], 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
