package tasks_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "cleanupd")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/cleanupd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// replica is a replica in a separate process. It may die, and restart at the same address.
type replica struct {
	program  string
	args     []string
	address  string // of the gRPC server; with the port 0 before the first start
	client   cleanupd.Client
	userData cleanupv1.UserDataServiceClient

	mu  sync.Mutex
	cmd *exec.Cmd // nil while it is down
}

// newReplica starts a replica with additional arguments. The replica and its clients end with the test.
func newReplica(t *testing.T, program, url string, args ...string) *replica {
	t.Helper()
	args = append([]string{"serve", "--database-url", url, "--lease", "1s", "--http-listen", "127.0.0.1:0"}, args...)
	r := &replica{program: program, args: args, address: "127.0.0.1:0"}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	r.client, r.userData = cleanupd.NewClient(conn), cleanupv1.NewUserDataServiceClient(conn)
	t.Cleanup(func() {
		_, _ = r.end(syscall.SIGKILL)
		_ = conn.Close()
	})
	return r
}

var serving = regexp.MustCompile(`msg=serving grpc=(\S+)`)

// start starts the process and waits until it serves. It returns an error if the process ends.
func (r *replica) start() error {
	cmd := exec.Command(r.program, append(r.args, "--grpc-listen", r.address)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if found := serving.FindStringSubmatch(lines.Text()); found != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.address, r.cmd = found[1], cmd
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return nil
		}
	}
	return errors.Join(errors.New("the replica did not start"), cmd.Wait())
}

func (r *replica) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(s)
	}
}

// end sends a signal to the process and waits for its end. It returns false if no process is running.
func (r *replica) end(signal syscall.Signal) (ok bool, err error) {
	r.mu.Lock()
	cmd := r.cmd
	r.mu.Unlock()
	if cmd == nil {
		return false, nil
	}
	r.signal(signal)
	force := time.AfterFunc(2*time.Minute, func() { r.signal(syscall.SIGKILL) })
	defer force.Stop()
	err = cmd.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cmd = nil
	return true, err
}

// follow appends the remaining events of a run to events, from any replica that answers. It removes events that were
// reported as lost.
func follow(
	ctx context.Context, t *testing.T, replicas []*replica, id string, events []*cleanupv1.RunEvent,
) []*cleanupv1.RunEvent {
	var last *cleanupv1.RunEvent
	for turn := 0; ctx.Err() == nil; turn++ {
		if last = nil; len(events) > 0 {
			last = events[len(events)-1]
		}
		stream, err := replicas[turn%len(replicas)].client.WatchRun(ctx, &cleanupv1.WatchRunRequest{
			RunId:         id,
			AfterSequence: last.GetSequence(),
			LogGeneration: last.GetLogGeneration(),
		})
		for err == nil {
			var m *cleanupv1.WatchRunResponse
			if m, err = stream.Recv(); err != nil {
				break
			}
			if m.GetEvent().GetSequence() != int64(len(events)+1) {
				t.Errorf("event %d follows %d", m.GetEvent().GetSequence(), len(events))
				return events
			}
			last = m.GetEvent()
			events = append(events, last)
		}
		switch {
		case status.Code(err) == codes.DataLoss:
			n, err := strconv.Atoi(
				status.Convert(err).Details()[0].(*errdetails.ErrorInfo).GetMetadata()["after_sequence"])
			if err != nil || n >= len(events) {
				t.Errorf("after %d events: the first %d were not lost, %v", len(events), n, err)
				return events
			}
			events = events[:n]
		case errors.Is(err,
			io.EOF) || status.Code(err) != codes.Unavailable || last.GetRunFinished().GetRun().GetError() != "":
			if last.GetRunFinished() == nil {
				t.Errorf("the events ended after %d: %v", len(events), err)
			}
			return events
		default:
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Errorf("the run has not ended after %d events", len(events))
	return events
}
