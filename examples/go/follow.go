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

type follower struct {
	client   cleanupv1.CleanupServiceClient
	patience time.Duration // how long to try to start the run, or to reconnect to it
	// starts the run; because of its request_id, repeating it starts no second run
	request *cleanupv1.RunCleanupRequest
	at      *cleanupv1.WatchRunRequest // asks for the events after the last one; nil before the first
}

// events returns a function that returns the next event of the stream.
func events[M interface{ GetEvent() *cleanupv1.RunEvent }](stream interface{ Recv() (M, error) }, err error) func() (
	*cleanupv1.RunEvent, error,
) {
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

// ask returns a function that returns one event at a time.
func (f *follower) ask(ctx context.Context) func() (*cleanupv1.RunEvent, error) {
	if f.at == nil {
		return events(f.client.RunCleanup(ctx, f.request))
	}
	return events(f.client.WatchRun(ctx, f.at))
}

// follow shows the events of the run until it ends, and returns the run. If follow fails, the run may still be going
// on.
func (f *follower) follow(ctx context.Context, show func(*cleanupv1.RunEvent)) (*cleanupv1.Run, error) {
	var lost time.Time // when the connection was lost; zero if it is not
	receive := f.ask(ctx)
	for {
		event, err := receive()
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
		switch code := status.Code(err); {
		case code == codes.Unavailable:
			if lost.IsZero() {
				lost = time.Now()
				fmt.Fprintf(os.Stderr, "The connection is lost, trying for %s to come back to %s.\n", f.patience,
					f.run())
			}
			if time.Since(lost) > f.patience {
				return nil, fmt.Errorf("%s may go on, see --watch: %w", f.run(), err)
			}
			time.Sleep(time.Second)
		case code == codes.DataLoss && f.at != nil:
			f.at.AfterSequence, f.at.LogGeneration = stillThere(err), 0
			fmt.Fprintf(os.Stderr, "The database lost the events after the first %d, going on from there.\n",
				f.at.GetAfterSequence())
		default:
			return nil, err
		}
		receive = f.ask(ctx)
	}
}

func (f *follower) run() string {
	if f.at == nil {
		return "the run"
	}
	return "run " + f.at.GetRunId()
}

// stillThere returns how many events of the run the database still has after it lost others. If the error does not say,
// it returns 0, from where any run can be watched.
func stillThere(err error) int64 {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			if n, err := strconv.ParseInt(info.GetMetadata()["after_sequence"], 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
