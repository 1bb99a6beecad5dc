// Package rpc connects the commands of internal/cli to a server: the flags for the server and its credentials,
// calls, pages of lists, and errors for people. It makes all of a server's responses printable. The demo uses it,
// too.
package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/contexts"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
)

// DefaultAddress applies if neither a flag nor a context gives another address.
const DefaultAddress = "127.0.0.1:9090"

// Server is set by flags, environment variables and contexts.
type Server struct {
	contexts.Context
	token       string
	name        string // the name of the context; empty if none is used
	databaseURL string // of the database on which a server in this process works; empty for a server elsewhere
	inProcess   *inProcess
	given       func(flag string) bool
}

func (s *Server) AddFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	AddContextFlags(f, &s.Context)
	f.Lookup("server").DefValue, s.Address = DefaultAddress, DefaultAddress
	f.StringVar(&s.token, "token", "",
		"a static token or a JWT to send; other users of the machine can see the flag, but not the variable")
	f.StringVar(&s.name, "context", "",
		"the context to use, as in cleanupd context; flags and variables replace its settings (default the current "+
			"one, unless there is --server)")
	CompleteFlag(cmd, "context", CompleteContexts)
	f.StringVar(&s.databaseURL, "database-url", "",
		"work on this database without a server, postgres://USER@HOST/DATABASE: the command has a server of its own, "+
			"which ends with it; the password is in the URL, or in the file that ?passfile= or PGPASSFILE names")
	// where variables configure serve, its clients must not bypass it
	flags.WithoutVariable(f, "database-url")
}

// AddContextFlags adds no flag for a token, since contexts do not store tokens.
func AddContextFlags(f *pflag.FlagSet, c *contexts.Context) {
	f.StringVar(&c.Address, "server", "", "the gRPC address of a server, HOST:PORT")
	f.BoolVar(&c.TLS, "tls", false, "use TLS, and trust the certificate authorities of the system")
	f.StringVar(&c.CA, "tls-ca", "", "use TLS, and trust the certificate authorities in this PEM file")
	f.StringVar(&c.Certificate, "client-cert", "", "use TLS, and present the client certificate in this PEM file")
	f.StringVar(&c.Key, "client-key", "", "the key of --client-cert: a PEM file")
}

// useContext fills in from a context what neither flags nor variables gave. It takes the named context, or the
// current one if no server was given. notice tells the user which server is used, if they may have meant another
// one.
func (s *Server) useContext(cmd *cobra.Command) (notice string, err error) {
	s.given = cmd.Flags().Changed
	switch {
	case s.InProcess() && (flags.OnCommandLine(cmd.Flags(), "server") || flags.OnCommandLine(cmd.Flags(), "context")):
		return "", flags.Errorf("give either a server, by --server or --context, or --database-url")
	case s.InProcess(), s.given("server") && !s.given("context"):
		return "", nil
	}
	file, err := contexts.Load()
	if err != nil {
		return "", err
	}
	s.name = cmp.Or(s.name, file.Current)
	switch {
	case s.name != "":
	case len(file.Contexts) > 0:
		return fmt.Sprintf("Server %s, the default: no context is in use (cleanupd context use NAME).", s), nil
	default:
		return "", nil
	}
	c, err := file.Get(s.name)
	if err != nil {
		return "", err
	}
	switch {
	case s.given("server") && s.Address != c.Address:
		notice = fmt.Sprintf("Server %s, as given, not %s of the context %s; its token is not sent.", s.Address,
			c.Address, s.name)
		c.TokenFile = ""
	case !s.given("context") && len(file.Contexts) > 1:
		notice = fmt.Sprintf("Server %s of the context %s.", c.Address, s.name)
	}
	s.merge(c)
	return notice, nil
}

// merge takes over a context, but keeps what flags gave.
func (s *Server) merge(c contexts.Context) {
	given := s.Context
	s.Context = c
	for flag, set := range map[string]func(){
		"server":      func() { s.Address = given.Address },
		"tls":         func() { s.TLS = given.TLS },
		"tls-ca":      func() { s.CA = given.CA },
		"client-cert": func() { s.Certificate = given.Certificate },
		"client-key":  func() { s.Key = given.Key },
	} {
		if s.given(flag) {
			set()
		}
	}
}

func (s *Server) String() string {
	if s.InProcess() {
		return "none: this command works on " + WithoutPassword(s.databaseURL)
	}
	if s.name != "" {
		return s.Address + " (context " + s.name + ")"
	}
	return s.Address
}

// Command returns a command line for the same server, for users to copy. It does not contain the token.
func (s *Server) Command(name, arguments string) string {
	text := "cleanupd " + name + " " + arguments
	if s.InProcess() {
		return text + " --database-url " + format.ShellWord(WithoutPassword(s.databaseURL))
	}
	if s.name != "" {
		text += " --context " + s.name
	}
	for _, setting := range []struct{ flag, value string }{
		{"server", s.Address},
		{"tls-ca", s.CA},
		{"client-cert", s.Certificate},
		{"client-key", s.Key},
	} {
		if setting.value != "" && (s.name == "" || s.given(setting.flag)) {
			text += fmt.Sprintf(" --%s %s", setting.flag, format.ShellWord(setting.value))
		}
	}
	if s.TLS && (s.name == "" || s.given("tls")) {
		text += " --tls"
	}
	return text
}

// Dial does not connect yet; the first call does.
func (s *Server) Dial() (*grpc.ClientConn, error) {
	_, port, err := net.SplitHostPort(s.Address)
	if number, portErr := net.LookupPort("tcp", port); err != nil || portErr != nil || number == 0 {
		return nil, flags.Errorf("--server: %q is not HOST:PORT", s.Address)
	}
	creds, encrypted, err := s.transport()
	if err != nil {
		return nil, err
	}
	options := append(dialOptions(), grpc.WithTransportCredentials(creds))
	token, origin, err := s.readToken()
	if err != nil {
		return nil, err
	}
	if token != "" {
		if !encrypted && !access.IsLoopback(s.Address) {
			return nil, flags.Errorf("%s would be sent to %s in plain text: add --tls or --tls-ca", origin, s.Address)
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	conn, err := grpc.NewClient(s.Address, options...)
	if err != nil {
		return nil, flags.Errorf("--server: %w", err)
	}
	return conn, nil
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(transport.MaxResponse)),
		grpc.WithChainUnaryInterceptor(printableResponses), grpc.WithChainStreamInterceptor(printableStreams),
	}
}

// readToken returns an empty token if none is given. origin is the flag or the file that the token comes from.
func (s *Server) readToken() (token, origin string, err error) {
	if s.token != "" || s.TokenFile == "" {
		return s.token, "--token", nil
	}
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", "", flags.Errorf("--token-file: %w", err)
	}
	token = strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, unicode.IsSpace) {
		return "", "", flags.Errorf("--token-file: %s must have one token, and nothing else", s.TokenFile)
	}
	return token, "the token of " + s.TokenFile, nil
}

func (s *Server) transport() (c credentials.TransportCredentials, encrypted bool, err error) {
	if (s.Certificate == "") != (s.Key == "") {
		return nil, false, flags.Errorf("--client-cert and --client-key must be given together")
	}
	if !s.TLS && s.CA == "" && s.Certificate == "" {
		return insecure.NewCredentials(), false, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		if config.RootCAs, err = flags.ReadAuthorities("--tls-ca", s.CA); err != nil {
			return nil, false, err
		}
	}
	if s.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(s.Certificate, s.Key)
		if err != nil {
			return nil, false, flags.Errorf("--client-cert, --client-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), true, nil
}

type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity allows tokens without TLS; Dial sends them only to loopback addresses then.
func (bearer) RequireTransportSecurity() bool { return false }

func WithClient(server *Server, do func(cmd *cobra.Command, client cleanupd.Client, args []string) error) func(
	*cobra.Command, []string,
) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		notice, err := server.useContext(cmd)
		if err != nil {
			return err
		}
		conn, err := server.connect(cmd)
		if err != nil {
			return err
		}
		if notice != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), notice)
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		return PlainError(nameFields(cmd, server.Explain(do(cmd, cleanupd.NewClient(conn), args))))
	}
}

// PrintTarget prints the server and the database that it cleans, before the user is asked to confirm a change.
func PrintTarget(cmd *cobra.Command, server *Server, client cleanupd.Client) error {
	about, err := client.GetServer(cmd.Context(), &cleanupv1.GetServerRequest{})
	if errors.Is(err, migrate.ErrNoSchema) { // the question must not create it
		PrintFact(cmd.ErrOrStderr(), "Server", server.String())
		return nil
	}
	if err != nil {
		return err
	}
	database := about.GetDatabase()
	if about.GetDatabaseHost() != "" { // an older server does not have it
		database += " on " + about.GetDatabaseHost()
	}
	if about.GetInstance() != "" {
		database += ", instance " + about.GetInstance()
	}
	w := cmd.ErrOrStderr()
	PrintFact(w, "Server", server.String())
	PrintFact(w, "Database", database)
	return nil
}

func PrintFact(w io.Writer, name, text string) { fmt.Fprintf(w, "%-9s %s\n", name, text) }
