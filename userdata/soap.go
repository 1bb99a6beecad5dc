package userdata

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Server is a client of a Forms server's web service, by SOAP 1.1 over HTTP. It trusts no answer: none is followed
// elsewhere, read beyond a limit, or taken for success unless it is just that.
type Server struct {
	config ServerConfig
	client *http.Client
}

// ServerConfig configures a Server.
type ServerConfig struct {
	// URL is the address of the service ProcessManager, such as https://forms.example/soap/services/ProcessManager.
	URL string
	// User and Password are sent as basic authentication; without a user there is none.
	User, Password string
	// TLS is for https; nil: the system's certificate authorities are trusted.
	TLS *tls.Config
}

// Limits of a call: how long it may take, and the most bytes of an answer, of its headers, and of an error.
const (
	serverTimeout = 2 * time.Minute
	mostAnswer    = 1 << 20
	mostHeaders   = 64 << 10
	mostError     = 1 << 10
)

// NewServer returns a client of a Forms server. It does not connect.
func NewServer(c ServerConfig) *Server {
	return &Server{c, &http.Client{
		Timeout: serverTimeout,
		Transport: &http.Transport{
			TLSClientConfig:        c.TLS,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: mostHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

var _ ProcessManager = (*Server)(nil)

// TerminateProcess implements ProcessManager.
func (s *Server) TerminateProcess(ctx context.Context, invocation string) error {
	return s.call(ctx, "terminateProcess", invocation)
}

// PurgeProcessInstance implements ProcessManager.
func (s *Server) PurgeProcessInstance(ctx context.Context, invocation string) error {
	return s.call(ctx, "purgeProcessInstance", invocation)
}

// call calls an operation. The text of its error, which may quote the server, is one printable line.
func (s *Server) call(ctx context.Context, operation, invocation string) error {
	text, err := message(operation, invocation)
	if err == nil {
		err = s.send(ctx, operation, text)
	}
	if err != nil {
		return errors.New(cut(printable(err.Error()), mostError))
	}
	return nil
}

// send sends a message, and judges the answer.
func (s *Server) send(ctx context.Context, operation, text string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.config.URL, strings.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/xml; charset=utf-8")
	req.Header.Set("SOAPAction", `"`+operation+`"`)
	if s.config.User != "" {
		req.SetBasicAuth(s.config.User, s.config.Password)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("its answer can not be read: %w", err)
	case len(answer) > mostAnswer:
		return errors.New("its answer is larger than 1 MiB")
	}
	err = judge(answer, xml.Name{Space: servicesSpace, Local: operation + "Response"})
	var fault *faultError
	if resp.StatusCode != http.StatusOK && !errors.As(err, &fault) {
		return fmt.Errorf("it answered %s: %s", resp.Status, answer)
	}
	return err
}

// Namespaces of messages: that of SOAP 1.1, and that of the Forms server.
const (
	soapSpace     = "http://schemas.xmlsoap.org/soap/envelope/"
	servicesSpace = "http://adobe.com/idp/services"
)

// message is the request that calls an operation. It fails for an id that XML cannot hold: another one would be sent.
func message(operation, invocation string) (string, error) {
	var id bytes.Buffer
	if err := xml.EscapeText(&id, []byte(invocation)); err != nil {
		return "", err
	}
	if strings.ContainsRune(id.String(), '\uFFFD') {
		return "", fmt.Errorf("the invocation id %q can not be sent", invocation)
	}
	return fmt.Sprintf(`<?xml version="1.0" encoding="utf-8"?>
<soap:Envelope xmlns:soap="%[1]s"><soap:Body><%[2]s xmlns="%[3]s"><invocationId>%[4]s</invocationId></%[2]s></soap:Body></soap:Envelope>`,
		soapSpace, operation, servicesSpace, &id), nil
}
