// Command go runs the cleanup on a server, or watches a run, and prints what happens. With --dry-run it shows what
// would be deleted and which guards would refuse it, and with --approve it does exactly that. It reconnects to the run
// when the connection is lost. Its exit status is 0 only if the run succeeded.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/oauth"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

func main() {
	var (
		server = flag.String("server", "127.0.0.1:9090", "the gRPC address of a server, HOST:PORT")
		ca     = flag.String("tls-ca", "", "speak TLS, and trust the authorities in this PEM file")
		token  = flag.String("token", "",
			"the token to send, with --tls-ca only (default $CLEANUPD_TOKEN, which other users cannot see)")
		watched  = flag.String("watch", "", "watch the run with this id instead of starting one")
		dry      = flag.Bool("dry-run", false, "change nothing, count what would be deleted")
		approved = flag.String("approve", "",
			"do what the dry run with this id found, and accept the guards that it showed")
		tasks    []string
		patience = flag.Duration("patience", time.Minute,
			"how long to try to start a run, or to come back to it, after the connection was lost")
	)
	flag.Func("task", "run this task; may be repeated (default all)",
		func(name string) error { tasks = append(tasks, name); return nil })
	flag.Parse()
	conn, err := dial(*server, *ca, cmp.Or(*token, os.Getenv("CLEANUPD_TOKEN")))
	if err != nil {
		fail(err)
	}
	ctx, client := context.Background(), cleanupv1.NewCleanupServiceClient(conn)
	f := &follower{
		client:   client,
		patience: *patience,
		request:  &cleanupv1.RunCleanupRequest{Tasks: tasks, DryRun: *dry, RequestId: uuid.NewString()},
	}
	if *approved != "" {
		if err := approve(ctx, client, f.request, *approved); err != nil {
			fail(err)
		}
	}
	if *watched != "" {
		f.at = &cleanupv1.WatchRunRequest{RunId: *watched}
	}
	run, err := f.follow(ctx, show)
	if err != nil {
		fail(err)
	}
	if run.GetReason() == cleanupv1.RefusalReason_REFUSAL_REASON_GUARD {
		fmt.Fprintln(os.Stderr, "A guard refused it: look at a --dry-run, and --approve that.")
	}
	if run.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED {
		fail(fmt.Errorf("run %s is %s: %q", run.GetId(), run.GetState(), run.GetError()))
	}
}

// approve makes the run delete what a dry run found, and accept the guards that the dry run showed, with their numbers.
func approve(
	ctx context.Context, client cleanupv1.CleanupServiceClient, request *cleanupv1.RunCleanupRequest, dryRun string,
) error {
	found, err := client.GetRun(ctx, &cleanupv1.GetRunRequest{RunId: dryRun})
	if err != nil {
		return err
	}
	request.Plan = dryRun
	for _, result := range found.GetRun().GetResults() {
		for _, table := range result.GetPreview() {
			request.AcceptGuards = append(request.AcceptGuards, table.GetGuards()...)
		}
	}
	return nil
}

func fail(err error) {
	if s, ok := status.FromError(err); ok {
		err = fmt.Errorf("%s: %q", s.Code(), s.Message())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// dial connects with the first call.
func dial(server, ca, token string) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", ca)
		}
		transport = credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		// A server that vanished is noticed after a minute, and one that came back after two seconds.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 30 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  time.Second,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   2 * time.Second,
			},
			MinConnectTimeout: 20 * time.Second,
		}),
	}
	if token != "" {
		if ca == "" {
			return nil, errors.New("a token would be sent in plain text: add --tls-ca")
		}
		bearer := oauth.TokenSource{TokenSource: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})}
		options = append(options, grpc.WithPerRPCCredentials(bearer))
	}
	return grpc.NewClient(server, options...)
}

// show quotes what may be text from the database, since that may contain anything, such as commands to a terminal.
func show(e *cleanupv1.RunEvent) {
	switch {
	case e.GetRunStarted() != nil:
		fmt.Printf("Run %s began.\n", e.GetRunId())
	case e.GetTaskProgress() != nil:
		p := e.GetTaskProgress()
		fmt.Printf("%s: %d rows so far, now %q\n", p.GetTask(), p.GetRowsDeleted()+p.GetRowsUpdated(), p.GetObject())
	case e.GetTaskFinished() != nil:
		r := e.GetTaskFinished().GetResult()
		fmt.Printf("%s: %s, %d rows deleted, %d updated, %d left\n", r.GetTask(), r.GetState(), r.GetRowsDeleted(),
			r.GetRowsUpdated(), r.GetRowsRetained())
		for _, p := range r.GetPreview() { // of a dry run
			fmt.Printf("  %s %q: %d rows, %d tables\n", p.GetAction(), p.GetTable(), p.GetRows(), p.GetTables())
			for _, g := range p.GetGuards() {
				fmt.Printf("  %s refuses this for %q: the number is %d, the limit is %d\n", g.GetGuard(), g.GetTable(),
					g.GetNumber(), g.GetLimit())
			}
		}
	case e.GetLog() != nil && e.GetLog().GetLevel() != cleanupv1.LogLevel_LOG_LEVEL_INFO:
		fmt.Printf("%s: %s %q\n", e.GetLog().GetTask(), e.GetLog().GetLevel(), e.GetLog().GetMessage())
	case e.GetRunFinished() != nil:
		fmt.Printf("Run %s ended: %s.\n", e.GetRunId(), e.GetRunFinished().GetRun().GetState())
	}
}
