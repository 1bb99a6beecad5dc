package watch

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/service/runs"
)

// comeBackFor is how long a client tries to resume watching a run whose server is gone.
const resumeTimeout = time.Minute

// following receives a run's events, and resumes when the server that sends them is replaced, or the log that has them.
type Run struct {
	ctx        context.Context
	server     *rpc.Server
	client     cleanupv1.CleanupServiceClient
	receive    func() (*cleanupv1.RunEvent, error)
	ID         string
	last       int64 // the sequence of the last event received that holds
	generation int64 // of that event's log; 0: unknown
	ended      bool  // the last event received ended the run
	gone       bool  // the run is
}

// follow shows a run to its end. If the user interrupts it, or the server is lost, the error says that the run goes on,
// or may.
func (f *Run) Follow(v Printer) error {
	err := f.Print(v)
	switch {
	case f.ID == "" || f.ended:
		return err
	case f.gone:
		return fmt.Errorf(
			"run %s is gone: the database lost it, as in a failover to a standby that lagged, or it was deleted",
			f.ID,
		)
	case f.ctx.Err() != nil:
		return fmt.Errorf(
			"run %s goes on: %s shows it, %s stops it",
			f.ID,
			f.server.Command("runs watch", f.ID),
			f.server.Command("runs cancel", f.ID),
		)
	case err != nil:
		return fmt.Errorf(
			"%w; run %[2]s may go on: cleanupd runs watch %[2]s --server OTHER shows it by another replica",
			rpc.PlainError(err),
			f.ID,
		)
	}
	return nil
}

// newFollowing returns the run whose events a stream sends. client watches the run again when the stream breaks off.
func New[M interface{ GetEvent() *cleanupv1.RunEvent }](
	ctx context.Context,
	server *rpc.Server,
	client cleanupv1.CleanupServiceClient,
	stream interface{ Recv() (M, error) },
) *Run {
	return &Run{ctx: ctx, server: server, client: client, receive: received(stream)}
}

// received turns a stream of either kind into one of events.
func received[M interface{ GetEvent() *cleanupv1.RunEvent }](
	stream interface{ Recv() (M, error) },
) func() (*cleanupv1.RunEvent, error) {
	return func() (*cleanupv1.RunEvent, error) {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		return m.GetEvent(), nil
	}
}

// next is the next event. After the last one its error is the status of the run.
func (f *Run) next() (*cleanupv1.RunEvent, error) {
	e, err := f.receive()
	if err == nil {
		f.ID, f.last, f.generation, f.ended = e.GetRunId(), e.GetSequence(), e.GetLogGeneration(), e.GetRunFinished() != nil
	}
	f.gone = status.Code(err) == codes.NotFound
	return e, err
}

// again says why the run is to be watched again after an error; empty: it is not.
func (f *Run) resumable(err error) string {
	s := status.Convert(err)
	switch {
	case f.ID == "" || f.ended:
	case s.Code() == codes.Unavailable:
		return "the server is gone: trying for a minute to come back to the run"
	case s.Code() == codes.DataLoss:
		for _, detail := range s.Details() {
			info, _ := detail.(*errdetails.ErrorInfo)
			after, err := strconv.ParseInt(info.GetMetadata()["after_sequence"], 10, 64)
			if err == nil && info.GetReason() == runs.LogReplaced {
				f.last, f.generation = after, 0
				return fmt.Sprintf(
					"the database lost the events after the first %d, as in a failover: going on from there",
					after,
				)
			}
		}
	}
	return ""
}

// comeBack watches the run from the event after the last one that holds, as soon as a server answers; lost is the error
// that made that necessary.
func (f *Run) resume(lost error) (*cleanupv1.RunEvent, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 2*time.Second
	return backoff.Retry(f.ctx, func() (*cleanupv1.RunEvent, error) {
		stream, err := f.client.WatchRun(
			f.ctx,
			&cleanupv1.WatchRunRequest{RunId: f.ID, AfterSequence: f.last, LogGeneration: f.generation},
		)
		if err != nil {
			return nil, lost
		}
		f.receive = received(stream)
		e, err := f.next()
		if err != nil && status.Code(err) != codes.Unavailable {
			return nil, backoff.Permanent(err)
		}
		return e, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(resumeTimeout))
}
