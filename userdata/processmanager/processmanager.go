// Package processmanager is a client of the web service ProcessManager of an AEM Forms server, which terminates and
// purges process instances. It speaks SOAP 1.1 over HTTP, and checks responses strictly. The program creates a
// Client if the server's address is configured, and package userdata calls it.
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
	"unicode/utf8"
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

// envelope is a SOAP envelope. Others and Text collect everything in it except the header and the body.
type envelope struct {
	XMLName xml.Name  `xml:"http://schemas.xmlsoap.org/soap/envelope/ Envelope"`
	Headers []element `xml:"http://schemas.xmlsoap.org/soap/envelope/ Header"`
	Bodies  []body    `xml:"http://schemas.xmlsoap.org/soap/envelope/ Body"`
	Others  []element `xml:",any"`
	Text    string    `xml:",chardata"`
}

type body struct {
	Faults []faultError `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault"`
	Others []element    `xml:",any"`
	Text   string       `xml:",chardata"`
}

type element struct{ XMLName xml.Name }

// faultError is a failure that the server reported.
type faultError struct {
	Code   string `xml:"faultcode"`
	Reason string `xml:"faultstring"`
}

func (f *faultError) Error() string {
	return fmt.Sprintf("it reported a fault: %s (%s)", f.Reason, f.Code)
}

// check returns nil if the response is one envelope with one body that holds only the wanted element, and a
// *faultError if the body holds only a fault. Any other error says what is wrong with the response.
func check(response []byte, want xml.Name) error {
	if !utf8.Valid(response) { // the decoder does not notice this everywhere
		return errors.New("its response is not UTF-8")
	}
	d := xml.NewTokenDecoder(&strictReader{in: xml.NewDecoder(bytes.NewReader(response))})
	var e envelope
	err := d.Decode(&e)
	if err == nil {
		err = expectEnd(d)
	}
	if err != nil {
		return fmt.Errorf("its response is not a SOAP message: %w", err)
	}
	if len(e.Bodies) != 1 || len(e.Headers) > 1 || len(e.Others) > 0 || !blank(e.Text) {
		return fmt.Errorf("its response is not an envelope with one body: it has %d bodies and other elements %v",
			len(e.Bodies), e.Others)
	}
	b := e.Bodies[0]
	switch {
	case !blank(b.Text) || len(b.Faults)+len(b.Others) != 1:
		return fmt.Errorf("the body of its response does not hold one element: it has %d elements and %d faults",
			len(b.Others), len(b.Faults))
	case len(b.Faults) == 1:
		return &b.Faults[0]
	case b.Others[0].XMLName != want:
		return fmt.Errorf("its response is a %v, not a %s", b.Others[0].XMLName, want.Local)
	}
	return nil
}

// expectEnd fails unless only white space and comments follow the element.
func expectEnd(d *xml.Decoder) error {
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// maxDepth is how deep the elements of a response may be nested.
const maxDepth = 100

// strictReader reads a document of one element. It refuses what SOAP forbids but a decoder accepts: a DTD,
// processing instructions, and text or elements outside the one element.
type strictReader struct {
	in    *xml.Decoder
	begun bool // whether a token was read
	roots int
	depth int
}

func (s *strictReader) Token() (xml.Token, error) {
	token, err := s.in.RawToken()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case xml.Directive:
		err = errors.New("it has a DTD")
	case xml.ProcInst:
		if s.begun || t.Target != "xml" {
			err = fmt.Errorf("it has a processing instruction %s", t.Target)
		}
	case xml.CharData:
		if s.depth == 0 && !blank(string(t)) {
			err = errors.New("it has text around its element")
		}
	case xml.StartElement:
		if s.depth == 0 {
			s.roots++
		}
		if s.depth++; s.depth > maxDepth || s.roots > 1 {
			err = fmt.Errorf("it has more than one element, or elements nested more than %d deep", maxDepth)
		}
	case xml.EndElement:
		s.depth--
	}
	if err != nil {
		return nil, err
	}
	s.begun = true
	return token, nil
}

// blank reports whether the text is only white space as XML defines it.
func blank(text string) bool { return strings.Trim(text, " \t\r\n") == "" }
