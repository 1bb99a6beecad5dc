package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// Conn is a connection to a server.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// OwnServer is a server in this process.
type OwnServer interface {
	Dial(ctx context.Context) (net.Conn, error)
	// Work makes it execute runs; before, it executes none.
	Work(ctx context.Context) error
	// WorkOnErasures makes it carry out erasures, including interrupted ones. Before, it carries out none until one is
	// requested.
	WorkOnErasures()
	// Close waits for the current batch.
	Close() error
}

// Starter starts a server that works on a database, and reports to w what it creates there. Unless create is set, it
// fails with migrate.ErrNoSchema if the service has stored nothing there yet.
type Starter func(ctx context.Context, databaseURL string, create bool, w io.Writer) (OwnServer, error)

type starterKey struct{}

// WithStarter returns a context for commands that can start a server in this process.
func WithStarter(ctx context.Context, start Starter) context.Context {
	return context.WithValue(ctx, starterKey{}, start)
}

// connect connects to the server, or to one in this process if a database is given instead. Nothing happens before the
// first call.
func (s *Server) connect(cmd *cobra.Command) (Conn, error) {
	if !s.InProcess() {
		return s.Dial()
	}
	start, _ := cmd.Context().Value(starterKey{}).(Starter)
	c := &inProcess{startServer: func(ctx context.Context, create bool) (OwnServer, error) {
		return start(ctx, s.databaseURL, create, cmd.ErrOrStderr())
	}}
	s.inProcess = c
	var err error
	c.ClientConn, err = grpc.NewClient("passthrough:///in-process", append(
		dialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.server.Dial(ctx) }),
		grpc.WithChainUnaryInterceptor(c.call), grpc.WithChainStreamInterceptor(c.stream),
	)...)
	return c, err
}

// inProcess starts its server before the first call.
type inProcess struct {
	*grpc.ClientConn
	startServer func(ctx context.Context, create bool) (OwnServer, error)
	server      OwnServer
}

// aboutStored are the calls that make no sense before the service has stored something. A command that begins with one
// of them does not create the schema cleanupd, for example in a database whose name was mistyped.
var aboutStored = []string{
	cleanupv1.ServerService_ListAudit_FullMethodName, cleanupv1.CleanupService_ListRuns_FullMethodName,
	cleanupv1.CleanupService_GetRun_FullMethodName, cleanupv1.CleanupService_WatchRun_FullMethodName,
	cleanupv1.CleanupService_CancelRun_FullMethodName, cleanupv1.PolicyService_ListPolicies_FullMethodName,
	cleanupv1.PolicyService_GetPolicy_FullMethodName, cleanupv1.PolicyService_DeletePolicy_FullMethodName,
	cleanupv1.GuardService_ListHolds_FullMethodName, cleanupv1.GuardService_ReleaseHold_FullMethodName,
	cleanupv1.RestoreService_ListTrash_FullMethodName, cleanupv1.RestoreService_RestoreTrash_FullMethodName,
	cleanupv1.RestoreService_PurgeTrash_FullMethodName, cleanupv1.ServerService_GetServer_FullMethodName,
}

func (c *inProcess) start(ctx context.Context, method string) (err error) {
	if c.server == nil { // commands make one call after the other
		c.server, err = c.startServer(ctx, !slices.Contains(aboutStored, method))
	}
	return err
}

func (c *inProcess) call(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	if err := c.start(ctx, method); err != nil {
		return err
	}
	return call(ctx, method, req, reply, conn, options...)
}

// stream lets the server work on runs, since a stream follows one.
func (c *inProcess) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if err := c.start(ctx, method); err != nil {
		return nil, err
	}
	if err := c.server.Work(ctx); err != nil {
		return nil, err
	}
	return open(ctx, desc, conn, method, options...)
}

func (c *inProcess) Close() error {
	err := c.ClientConn.Close()
	if c.server != nil {
		err = errors.Join(err, c.server.Close())
	}
	return err
}

// InProcess reports whether the server is one in this process, which ends with the command.
func (s *Server) InProcess() bool { return s.databaseURL != "" }

// WorkOnErasures lets the server in this process, which has answered a call, carry out interrupted erasures.
func (s *Server) WorkOnErasures() { s.inProcess.server.WorkOnErasures() }

func (s *Server) DatabaseURL() string { return s.databaseURL }

// WithoutPassword returns the URL of a database as it may be shown.
func WithoutPassword(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil || u.Scheme == "" { // the form KEYWORD=VALUE may have a password anywhere
		return "URL"
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	if query.Has("password") {
		query.Del("password")
		u.RawQuery = query.Encode()
	}
	return u.String()
}
