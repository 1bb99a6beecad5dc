package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/user"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// InProcess is a server without ports for one command, which calls it from the same process. It is one more replica
// of the service that cleans the database, with the settings that variables and --config give to serve.
type InProcess struct {
	server *Server
	level  *slog.LevelVar
	work   chan struct{} // closed when it begins to execute runs
	begin  sync.Once
	end    context.CancelFunc
	served chan error
}

// StartInProcess starts a server, and reports to w if it creates the schema cleanupd. Unless create is set, it fails
// with migrate.ErrNoSchema without one.
func StartInProcess(ctx context.Context, databaseURL string, create bool, w io.Writer) (*InProcess, error) {
	if !create {
		if err := requireSchema(ctx, databaseURL); err != nil {
			return nil, err
		}
	}
	c, logging := DefaultConfig(), logConfig{}
	settings := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.addFlags(settings)
	logging.addFlags(settings)
	flags.AddSettingsFile(settings)
	if err := flags.ReadSettings(settings, settings); err != nil {
		return nil, err
	}
	c.noteGiven(settings)
	p := &InProcess{level: &slog.LevelVar{}, work: make(chan struct{}), served: make(chan error, 1)}
	p.level.Set(silent)
	log, err := logging.newLogger(w, p.level)
	if err != nil {
		return nil, err
	}
	c.DatabaseURL, c.runs.KeepSchedule, c.console, c.access = databaseURL, false, false, accessConfig{insecure: true}
	c.inProcess, c.created = true, func(database string) {
		fmt.Fprintf(w, "Created the schema cleanupd in the database %s: what cleanupd stores there is in it.\n", database)
	}
	if p.server, err = New(ctx, c, log); err != nil {
		return nil, err
	}
	if p.server.created { // serve says so whenever it starts
		p.level.Set(slog.LevelWarn)
		err = warnOfBackups(ctx, p.server.log, p.server.pool)
		p.level.Set(silent)
		if err != nil {
			return nil, err
		}
	}
	// the end of the command's context ends its calls; the server then ends in Close, after the current batch
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	p.end = end
	go func() { p.served <- p.server.serve(serving, p.work) }()
	return p, nil
}

func requireSchema(ctx context.Context, databaseURL string) error {
	config, err := flags.DatabaseURL("--database-url", databaseURL)
	if err != nil {
		return err
	}
	conn, err := connection.Connect(ctx, config)
	if err != nil {
		return fmt.Errorf("cannot connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	missing, err := lacksSchema(ctx, conn)
	if missing {
		return migrate.ErrNoSchema
	}
	return err
}

// Dial opens a connection for gRPC.
func (p *InProcess) Dial(ctx context.Context) (net.Conn, error) {
	return p.server.GRPC.(pipe).DialContext(ctx)
}

// silent is above all levels. What happens in calls and runs is not logged, since the command prints it.
const silent = slog.LevelError + 1

// Work starts executing runs, unless it has done so before, and first logs warnings about the database. Until then an
// interrupted run is not resumed, so that read-only commands leave it as it is.
func (p *InProcess) Work(ctx context.Context) (err error) {
	p.begin.Do(func() {
		p.level.Set(slog.LevelWarn)
		err = p.server.warn(ctx)
		p.level.Set(silent)
		close(p.work)
	})
	return err
}

// WorkOnErasures starts carrying out erasures, including interrupted ones.
func (p *InProcess) WorkOnErasures() {
	if p.server.forms != nil {
		p.server.forms.Wake()
	}
}

// notifyTimeout limits how long a command waits for its last notifications to be sent; a later one tries again.
const notifyTimeout = 15 * time.Second

// Close ends the server: it lets the current batch finish, and sends the notifications that are due.
func (p *InProcess) Close() error {
	select {
	case <-p.work:
		ctx, cancel := context.WithTimeout(context.Background(), notifyTimeout)
		defer cancel()
		p.level.Set(slog.LevelWarn)
		p.server.manager.Notify(ctx)
		p.level.Set(silent)
	default:
	}
	p.end()
	return <-p.served
}

// pipe is a listener in memory, whose connections come from the user of this process.
type pipe struct{ *bufconn.Listener }

func newPipe() pipe { return pipe{bufconn.Listen(1 << 20)} }

func (p pipe) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	return pipeConn{conn}, err
}

type pipeConn struct{ net.Conn }

func (pipeConn) RemoteAddr() net.Addr { return processUser{} }

// processUser is the user of this process, as USER@HOST. The audit and the list of runs show it.
type processUser struct{}

func (processUser) Network() string { return "process" }

func (processUser) String() string {
	name := fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// storedInstance returns the name of the service that cleans the database, so that commands need not give it; "" if
// none does yet. A copy of a database is still recognized by its identifiers.
func storedInstance(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	stored, _, err := store.ReadIdentities(ctx, pool)
	return stored.Instance, err
}
