// Package watch follows a run from a client: it receives the run's events, reconnects when the server is replaced, and
// prints progress, results and previews.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs/eventlog"
)

// resumeTimeout is how long a client tries to start a run, or to reconnect to it, if the server does not answer.
const resumeTimeout = time.Minute

// Run receives the events of a run. It reconnects if the server that sends them is replaced, and continues after the
// last event that is left if the database has lost some.
type Run struct {
	ctx        context.Context
	server     *rpc.Server
	client     cleanupd.Client
	request    *cleanupv1.RunCleanupRequest // nil if the run was started before
	receive    func() (*cleanupv1.RunEvent, error)
	accepted   func() bool // whether the server accepted the call that has ended
	id         string      // empty before the first event
	sequence   int64       // the number of the last event that is not lost
	generation int64       // the generation of the log with that event; 0 if unknown
	finished   bool        // whether the last event ended the run
	missing    bool        // whether the run no longer exists
}

type Printer interface {
	Event(e *cleanupv1.RunEvent) error
	Note(text string) error // prints a text about the connection
	Clear() error           // removes progress that is shown, before an error is printed
}

// Start gives the request an id, unless it has one, so that repeating the request starts only one run.
func Start(
	ctx context.Context, server *rpc.Server, client cleanupd.Client, request *cleanupv1.RunCleanupRequest,
) (*Run, error) {
	// wait only for a server that has answered once, so that a wrong address fails at once
	if _, err := client.WhoAmI(ctx, &cleanupv1.WhoAmIRequest{}); err != nil {
		return nil, err
	}
	if request.GetRequestId() == "" {
		request.RequestId = uuid.NewString()
	}
	r := &Run{ctx: ctx, server: server, client: client, request: request}
	r.open()
	return r, nil
}

// NewRun follows a run that was started before; stream sends its events.
func NewRun(
	ctx context.Context, server *rpc.Server, client cleanupd.Client, stream cleanupv1.CleanupService_WatchRunClient,
) *Run {
	r := &Run{ctx: ctx, server: server, client: client}
	r.receive, r.accepted = receiver(stream, nil)
	return r
}

// open requests the events after the last one that is not lost. Before the first event, it repeats the request for
// the run.
func (r *Run) open() {
	if r.id == "" {
		r.receive, r.accepted = receiver(r.client.RunCleanup(r.ctx, r.request))
		return
	}
	r.receive, r.accepted = receiver(r.client.WatchRun(
		r.ctx, &cleanupv1.WatchRunRequest{RunId: r.id, AfterSequence: r.sequence, LogGeneration: r.generation},
	))
}

// receiver returns functions that receive the events of a stream, and report after its end whether the server
// accepted the call.
func receiver[M interface{ GetEvent() *cleanupv1.RunEvent }](
	stream interface {
		Recv() (M, error)
		Header() (metadata.MD, error)
	}, err error,
) (receive func() (*cleanupv1.RunEvent, error), accepted func() bool) {
	accepted = func() bool {
		if err != nil {
			return false
		}
		header, err := stream.Header()
		return err == nil && header != nil
	}
	return func() (*cleanupv1.RunEvent, error) {
		if err != nil {
			return nil, err
		}
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		return m.GetEvent(), nil
	}, accepted
}

// ID returns "" before the first event.
func (r *Run) ID() string { return r.id }

// Follow prints the run's events. If the user interrupts it or the server is lost, the run continues, and the error
// has the commands that watch or cancel it.
func (r *Run) Follow(p Printer) error {
	err := r.Print(p)
	switch {
	case r.id == "" && status.Code(err) == codes.Unavailable && r.request != nil && !r.request.GetDryRun():
		return fmt.Errorf("%w; the run may have been started: see %s", rpc.PlainError(r.server.Explain(err)),
			r.server.Command("runs", "--limit 1"))
	case r.finished:
		var known []string
		if v, ok := p.(*View); ok && v.WithErrors {
			known = v.errors
		}
		return oneEach(r.server, err, known)
	case r.id == "":
		return err
	case r.missing:
		return fmt.Errorf(
			"run %s no longer exists: it was deleted, or the database lost it, as in a failover to a lagging standby",
			r.id)
	case r.ctx.Err() != nil && r.server.InProcess():
		return fmt.Errorf("run %s stops after the current batch, unless a server of this database takes it over: resume "+
			"it with %s, cancel it with %s; the next run of the database resumes it first", r.id,
			r.server.Command("runs watch", r.id), r.server.Command("runs cancel", r.id))
	case r.ctx.Err() != nil:
		return fmt.Errorf("run %s continues: watch it with %s, cancel it with %s", r.id,
			r.server.Command("runs watch", r.id), r.server.Command("runs cancel", r.id))
	case err != nil:
		return fmt.Errorf(
			"%w; run %[2]s may continue: watch it on another replica with cleanupd runs watch %[2]s --server OTHER",
			rpc.PlainError(r.server.Explain(err)), r.id)
	}
	return nil
}

// Print prints the run's events, and returns the error that ended the stream.
func (r *Run) Print(p Printer) error {
	for {
		event, err := r.next()
		for reason := r.resumeReason(err); reason != ""; reason = r.resumeReason(err) {
			if err := p.Note(reason); err != nil {
				return err
			}
			if event, err = r.resume(); status.Code(err) == codes.Unavailable {
				break
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			_ = p.Clear() // the stream's error matters more
			return err
		}
		if err := p.Event(event); err != nil {
			return err
		}
	}
}

var ofTask = regexp.MustCompile(`^task (\S+) failed: `)

// oneEach splits the error of a run into one for each failed task, and shortens those that are known already.
func oneEach(server *rpc.Server, err error, known []string) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	var tasks []string
	for line := range strings.SplitSeq(s.Message(), "\n") {
		if len(tasks) > 0 && !strings.HasPrefix(line, "task ") {
			tasks[len(tasks)-1] += "\n" + line
			continue
		}
		tasks = append(tasks, line)
	}
	var all []error
	for _, text := range tasks {
		switch of := ofTask.FindStringSubmatch(text); {
		case of == nil:
		case slices.Contains(known, text):
			text = strings.TrimSuffix(of[0], ": ")
		default:
			text = spellOut(server, of[1], text)
		}
		if len(tasks) == 1 && text == s.Message() {
			return err
		}
		all = append(all, status.Error(s.Code(), text))
	}
	return errors.Join(all...)
}

// next returns the status of the run as its error after the last event.
func (r *Run) next() (*cleanupv1.RunEvent, error) {
	e, err := r.receive()
	if err == nil {
		r.id, r.sequence, r.generation = e.GetRunId(), e.GetSequence(), e.GetLogGeneration()
		r.finished = e.GetRunFinished() != nil
	}
	r.missing = status.Code(err) == codes.NotFound
	return e, err
}

// resumeReason returns "" if the run must not be requested or watched again.
func (r *Run) resumeReason(err error) string {
	s := status.Convert(err)
	switch {
	case r.finished:
	case r.id == "":
		if r.request != nil && s.Code() == codes.Unavailable {
			return "the server does not answer: repeating the request, which starts one run at most, for a minute"
		}
	case s.Code() == codes.Unavailable:
		return "the server does not answer: trying for a minute to reconnect to the run"
	case s.Code() == codes.DataLoss:
		for _, detail := range s.Details() {
			info, _ := detail.(*errdetails.ErrorInfo)
			after, err := strconv.ParseInt(info.GetMetadata()["after_sequence"], 10, 64)
			if err == nil && info.GetReason() == eventlog.LogReplaced {
				r.sequence, r.generation = after, 0
				return fmt.Sprintf(
					"the database lost the events after the first %d, as in a failover: continuing from there", after)
			}
		}
	}
	return ""
}

// resume requests the events after the last one that is not lost, until a server sends one. If a server accepted the
// call and a proxy cut it before an event came, the server counts as answering, since a paused run sends no events.
func (r *Run) resume() (*cleanupv1.RunEvent, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 2*time.Second
	for {
		answered := false
		event, err := backoff.Retry(r.ctx, func() (*cleanupv1.RunEvent, error) {
			r.open()
			e, err := r.next()
			answered = status.Code(err) == codes.Unavailable && r.accepted()
			if err != nil && (answered || status.Code(err) != codes.Unavailable) {
				return nil, backoff.Permanent(err)
			}
			return e, err
		}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(resumeTimeout))
		if !answered {
			return event, err
		}
		select {
		case <-time.After(time.Second):
		case <-r.ctx.Done():
			return nil, r.ctx.Err()
		}
	}
}

// NewPrinter returns a printer for the output format. With all, it prints tables in full length.
func NewPrinter(output format.Output, cmd *cobra.Command, server *rpc.Server, all bool) Printer {
	if output == format.Table {
		v := NewView(terminal.ScreenOf(cmd.OutOrStdout()), server, all)
		v.WithErrors = v.Width() > 0 && terminal.ScreenOf(cmd.ErrOrStderr()).Width() > 0
		return v
	}
	return &eventPrinter{output, cmd.OutOrStdout(), cmd.ErrOrStderr()}
}

func AddAllFlag(f *pflag.FlagSet, all *bool) {
	f.BoolVar(all, "all", false, "show all tables, not only the largest changes; -o json always has all")
}

// eventPrinter prints the API's messages.
type eventPrinter struct {
	output      format.Output
	out, errOut io.Writer
}

func (p *eventPrinter) Event(e *cleanupv1.RunEvent) error {
	return p.output.PrintMessage(p.out, &cleanupv1.WatchRunResponse{Event: e})
}

func (p *eventPrinter) Note(text string) error {
	_, err := fmt.Fprintln(p.errOut, text)
	return err
}

func (p *eventPrinter) Clear() error { return nil }
