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

// target is the server that a client talks to, and the client's credentials.
type Server struct {
	Address              string
	tls                  bool
	ca, certificate, key string
	token                string
}

// flags adds the flags that say which server a command talks to.
func (t *Server) AddFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&t.Address, "server", "127.0.0.1:9090", "the gRPC address of a server, HOST:PORT")
	f.BoolVar(&t.tls, "tls", false, "speak TLS, and trust the authorities of the system")
	f.StringVar(&t.ca, "tls-ca", "", "speak TLS, and trust the authorities in this PEM file")
	f.StringVar(&t.certificate, "client-cert", "", "speak TLS, and present the client certificate in this PEM file")
	f.StringVar(&t.key, "client-key", "", "the key of --client-cert: a PEM file")
	f.StringVar(
		&t.token,
		"token",
		"",
		"a static token or a JWT to send; other users of the machine can see a flag, but not the variable",
	)
}

// command is a command about a run on the same server, to be pasted. It has no token in it.
func (t *Server) Command(name, runID string) string {
	text := fmt.Sprintf("cleanupd %s %s --server %s", name, runID, t.Address)
	if t.tls {
		text += " --tls"
	}
	for _, file := range []struct{ flag, name string }{
		{"tls-ca", t.ca},
		{"client-cert", t.certificate},
		{"client-key", t.key},
	} {
		if file.name != "" {
			text += fmt.Sprintf(" --%s %s", file.flag, file.name)
		}
	}
	return text
}

// dial returns a connection to the server, which connects with the first call.
func (t *Server) Dial() (*grpc.ClientConn, error) {
	_, port, err := net.SplitHostPort(t.Address)
	if number, unknown := net.LookupPort("tcp", port); err != nil || unknown != nil || number == 0 {
		return nil, flags.Errorf("--server: %q is no HOST:PORT", t.Address)
	}
	creds, secure, err := t.transport()
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(transport.MaxResponse)),
		grpc.WithUnaryInterceptor(printableResponses),
		grpc.WithStreamInterceptor(printableStreams),
	}
	if t.token != "" {
		if !secure && !access.IsLoopback(t.Address) {
			return nil, flags.Errorf("--token would be sent to %s in plain text: add --tls or --tls-ca", t.Address)
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer(t.token)))
	}
	conn, err := grpc.NewClient(t.Address, options...)
	if err != nil {
		return nil, flags.Errorf("--server: %w", err)
	}
	return conn, nil
}

func (t *Server) transport() (c credentials.TransportCredentials, secure bool, err error) {
	if (t.certificate == "") != (t.key == "") {
		return nil, false, flags.Errorf("--client-cert and --client-key need each other")
	}
	if !t.tls && t.ca == "" && t.certificate == "" {
		return insecure.NewCredentials(), false, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		if config.RootCAs, err = flags.ReadAuthorities("--tls-ca", t.ca); err != nil {
			return nil, false, err
		}
	}
	if t.certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.certificate, t.key)
		if err != nil {
			return nil, false, flags.Errorf("--client-cert, --client-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), true, nil
}

// bearer is a token as the credentials of calls.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Without TLS, dial allows tokens on loopback only.
func (bearer) RequireTransportSecurity() bool { return false }
