package userdata

import (
	"context"
	"crypto/tls"
	"encoding/xml"
	"time"

	"github.com/hooklift/gowsdl/soap"
)

// Server is a client of a Forms server's web service, by SOAP 1.1 over HTTP.
type Server struct{ client *soap.Client }

// ServerConfig configures a Server.
type ServerConfig struct {
	// URL is the address of the service ProcessManager, such as https://forms.example/soap/services/ProcessManager.
	URL string
	// User and Password are sent as basic authentication; without a user there is none.
	User, Password string
	// TLS is for https; nil: the system's certificate authorities are trusted.
	TLS *tls.Config
}

// serverTimeout is how long the Forms server may take to respond.
const serverTimeout = 2 * time.Minute

// NewServer returns a client of a Forms server. It does not connect.
func NewServer(c ServerConfig) *Server {
	options := []soap.Option{soap.WithTimeout(serverTimeout), soap.WithRequestTimeout(serverTimeout)}
	if c.User != "" {
		options = append(options, soap.WithBasicAuth(c.User, c.Password))
	}
	if c.TLS != nil {
		options = append(options, soap.WithTLS(c.TLS))
	}
	return &Server{soap.NewClient(c.URL, options...)}
}

var _ ProcessManager = (*Server)(nil)

// terminateProcess and purgeProcessInstance are the bodies of the messages.
type (
	terminateProcess struct {
		XMLName      xml.Name `xml:"http://adobe.com/idp/services terminateProcess"`
		InvocationID string   `xml:"invocationId"`
	}
	purgeProcessInstance struct {
		XMLName      xml.Name `xml:"http://adobe.com/idp/services purgeProcessInstance"`
		InvocationID string   `xml:"invocationId"`
	}
	nothing struct{}
)

// TerminateProcess implements ProcessManager.
func (s *Server) TerminateProcess(ctx context.Context, invocation string) error {
	return s.client.CallContext(ctx, "terminateProcess", terminateProcess{InvocationID: invocation}, &nothing{})
}

// PurgeProcessInstance implements ProcessManager.
func (s *Server) PurgeProcessInstance(ctx context.Context, invocation string) error {
	return s.client.CallContext(ctx, "purgeProcessInstance", purgeProcessInstance{InvocationID: invocation}, &nothing{})
}
