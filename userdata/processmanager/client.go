package processmanager

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
	"unicode"
)

// Client calls the web service. It follows no redirects, limits the size of responses, and accepts only the response
// of the called operation as success.
type Client struct {
	config Config
	client *http.Client
}

type Config struct {
	// URL is the address of the service ProcessManager, such as https://forms.example/soap/services/ProcessManager.
	URL string
	// User and Password are sent as basic authentication, unless User is empty.
	User, Password string
	// TLS is the configuration for https; nil means that the system's certificate authorities are trusted.
	TLS *tls.Config
}

// These limit a call; sizes are in bytes.
const (
	callTimeout = 2 * time.Minute
	maxResponse = 1 << 20
	maxHeaders  = 64 << 10
	maxError    = 1 << 10
)

// New returns a Client without connecting to the server.
func New(c Config) *Client {
	return &Client{c, &http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			TLSClientConfig:        c.TLS,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// TerminateProcess takes the long-lived invocation id. It may return before the process instance has ended.
func (c *Client) TerminateProcess(ctx context.Context, invocation string) error {
	return c.call(ctx, "terminateProcess", invocation)
}

// PurgeProcessInstance deletes a process instance that has ended, with everything that it has in the database and in
// the document storage.
func (c *Client) PurgeProcessInstance(ctx context.Context, invocation string) error {
	return c.call(ctx, "purgeProcessInstance", invocation)
}

// call shortens its error to one printable line, since the error may quote the server.
func (c *Client) call(ctx context.Context, operation, invocation string) error {
	request, err := envelopeOf(operation, invocation)
	if err == nil {
		err = c.send(ctx, operation, request)
	}
	if err != nil {
		return errors.New(truncate(strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return ' '
			}
			return r
		}, err.Error()), maxError))
	}
	return nil
}

// truncate shortens the text to at most size bytes.
func truncate(text string, size int) string {
	const ellipsis = "…"
	if len(text) <= size {
		return text
	}
	return strings.ToValidUTF8(text[:size-len(ellipsis)], "") + ellipsis
}

func (c *Client) send(ctx context.Context, operation, request string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.URL, strings.NewReader(request))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/xml; charset=utf-8")
	req.Header.Set("SOAPAction", `"`+operation+`"`)
	if c.config.User != "" {
		req.SetBasicAuth(c.config.User, c.config.Password)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	response, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return fmt.Errorf("its response cannot be read: %w", err)
	case len(response) > maxResponse:
		return errors.New("its response is larger than 1 MiB")
	}
	err = check(response, xml.Name{Space: servicesSpace, Local: operation + "Response"})
	var fault *faultError
	if resp.StatusCode != http.StatusOK && !errors.As(err, &fault) {
		return fmt.Errorf("it responded %s: %s", resp.Status, response)
	}
	return err
}

// These are the namespaces of SOAP 1.1 and of the Forms server.
const (
	soapSpace     = "http://schemas.xmlsoap.org/soap/envelope/"
	servicesSpace = "http://adobe.com/idp/services"
)

// envelopeOf fails for an id that XML cannot represent, since a different id would be sent.
func envelopeOf(operation, invocation string) (string, error) {
	var id bytes.Buffer
	if err := xml.EscapeText(&id, []byte(invocation)); err != nil {
		return "", err
	}
	if strings.ContainsRune(id.String(), '\uFFFD') {
		return "", fmt.Errorf("the invocation id %q cannot be sent", invocation)
	}
	return fmt.Sprintf(`<?xml version="1.0" encoding="utf-8"?>
<soap:Envelope xmlns:soap="%[1]s"><soap:Body><%[2]s
	xmlns="%[3]s"><invocationId>%[4]s</invocationId></%[2]s></soap:Body></soap:Envelope>`,
		soapSpace, operation, servicesSpace, &id), nil
}
