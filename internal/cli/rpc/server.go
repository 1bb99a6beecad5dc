package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
)

// Server is the address of a server, and how the client authenticates itself.
type Server struct {
	Address              string
	tls                  bool
	ca, certificate, key string
	token                string
}

// AddFlags adds the flags of the server and the credentials to a command and its subcommands.
func (s *Server) AddFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&s.Address, "server", "127.0.0.1:9090", "the gRPC address of a server, HOST:PORT")
	f.BoolVar(&s.tls, "tls", false, "use TLS, and trust the certificate authorities of the system")
	f.StringVar(&s.ca, "tls-ca", "", "use TLS, and trust the certificate authorities in this PEM file")
	f.StringVar(&s.certificate, "client-cert", "", "use TLS, and present the client certificate in this PEM file")
	f.StringVar(&s.key, "client-key", "", "the key of --client-cert: a PEM file")
	f.StringVar(&s.token, "token", "",
		"a static token or a JWT to send; other users of the machine can see the flag, but not the variable")
}

// Command returns a command line about a run on the same server, to be pasted. It leaves out the token.
func (s *Server) Command(name, runID string) string {
	text := fmt.Sprintf("cleanupd %s %s --server %s", name, runID, s.Address)
	if s.tls {
		text += " --tls"
	}
	for _, file := range []struct{ flag, name string }{
		{"tls-ca", s.ca},
		{"client-cert", s.certificate},
		{"client-key", s.key},
	} {
		if file.name != "" {
			text += fmt.Sprintf(" --%s %s", file.flag, file.name)
		}
	}
	return text
}

// Dial returns a connection to the server, which connects with the first call.
func (s *Server) Dial() (*grpc.ClientConn, error) {
	_, port, err := net.SplitHostPort(s.Address)
	if number, portErr := net.LookupPort("tcp", port); err != nil || portErr != nil || number == 0 {
		return nil, flags.Errorf("--server: %q is not HOST:PORT", s.Address)
	}
	creds, encrypted, err := s.transport()
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(transport.MaxResponse)),
		grpc.WithUnaryInterceptor(printableResponses),
		grpc.WithStreamInterceptor(printableStreams),
	}
	if s.token != "" {
		if !encrypted && !access.IsLoopback(s.Address) {
			return nil, flags.Errorf("--token would be sent to %s in plain text: add --tls or --tls-ca", s.Address)
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer(s.token)))
	}
	conn, err := grpc.NewClient(s.Address, options...)
	if err != nil {
		return nil, flags.Errorf("--server: %w", err)
	}
	return conn, nil
}

// transport returns the credentials of the connection, and whether they encrypt it.
func (s *Server) transport() (c credentials.TransportCredentials, encrypted bool, err error) {
	if (s.certificate == "") != (s.key == "") {
		return nil, false, flags.Errorf("--client-cert and --client-key must be given together")
	}
	if !s.tls && s.ca == "" && s.certificate == "" {
		return insecure.NewCredentials(), false, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		if config.RootCAs, err = flags.ReadAuthorities("--tls-ca", s.ca); err != nil {
			return nil, false, err
		}
	}
	if s.certificate != "" {
		pair, err := tls.LoadX509KeyPair(s.certificate, s.key)
		if err != nil {
			return nil, false, flags.Errorf("--client-cert, --client-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), true, nil
}

// bearer is a token that is sent with each call.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Without TLS, Dial allows tokens only to loopback
// addresses.
func (bearer) RequireTransportSecurity() bool { return false }
