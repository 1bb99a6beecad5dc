package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	gomail "github.com/wneessen/go-mail"

	"github.com/cleanupd/cleanupd/internal/testca"
)

type received struct {
	hello string
	from  string
	to    []string
	user  string // "" without authentication
	data  []byte
}

// mailServer is a mail server in this process, and the session of each of its connections.
type mailServer struct {
	*smtp.Server
	address string
	// refuse is the error of each DATA (nil: accepted), unknown an address that is refused.
	refuse  error
	unknown string

	mu    sync.Mutex
	mails []received
}

// implicit: TLS from the beginning.
func startMail(t *testing.T, certificate *tls.Certificate, implicit bool) *mailServer {
	t.Helper()
	return startMailOn(t, "127.0.0.1:0", certificate, implicit)
}

func startMailOn(t *testing.T, address string, certificate *tls.Certificate, implicit bool) *mailServer {
	t.Helper()
	s := &mailServer{}
	s.Server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &session{server: s, received: received{hello: c.Hostname()}}, nil
	}))
	s.AllowInsecureAuth = true
	s.ErrorLog = discard{}
	if certificate != nil {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	if implicit {
		l = tls.NewListener(l, s.TLSConfig)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

type discard struct{}

func (discard) Printf(string, ...any) {}
func (discard) Println(...any)        {}

type session struct {
	server *mailServer
	received
}

func (s *session) Reset()        { s.received = received{user: s.user, hello: s.hello} }
func (s *session) Logout() error { return nil }
func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if to == s.server.unknown {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "nobody is called so"}
	}
	s.to = append(s.to, to)
	return nil
}

func (s *session) Data(r io.Reader) (err error) {
	if s.data, err = io.ReadAll(r); err != nil {
		return err
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.mails = append(s.server.mails, s.received)
	return s.server.refuse
}

func (*session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if password != "PLANTED" {
			return fmt.Errorf("%s is not the password", password)
		}
		s.user = user
		return nil
	}), nil
}

func (s *mailServer) last(t *testing.T) (received, *mail.Message, string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mails) == 0 {
		t.Fatal("no mail was received")
	}
	r := s.mails[len(s.mails)-1]
	msg, err := mail.ReadMessage(bytes.NewReader(r.data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
	if err != nil {
		t.Fatal(err)
	}
	return r, msg, strings.ReplaceAll(string(text), "\r\n", "\n")
}

// A mail says what the event says, with the same Message-ID in each attempt.
func TestMail(t *testing.T) {
	t.Parallel()
	s := startMail(t, nil, false)
	to := target(t, "smtp://"+s.address+"?to=ann@example.com,bob@example.com", Options{})
	e := eventOf(Origin{"campaign", "", "prod"}, failedRun("audit-trail", "not this one"))
	if err := to.Send(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	r, msg, text := s.last(t)
	if r.from != "cleanupd@example.com" || strings.Join(r.to, " ") != "ann@example.com bob@example.com" ||
		r.user != "" {
		t.Errorf("got from %s to %s as %s", r.from, r.to, r.user)
	}
	subject, err := (&mime.WordDecoder{}).DecodeHeader(msg.Header.Get("Subject"))
	if err != nil || subject != `cleanupd: The cleanup run failed in the database "campaign" (instance "prod")` {
		t.Errorf("got %s, %v", subject, err)
	}
	if !strings.HasPrefix(text, e.Data.Description) || !strings.Contains(text, e.ID) {
		t.Errorf("got %s", text)
	}
	date, err := msg.Header.Date()
	if err != nil || !date.Equal(ended) || msg.Header.Get("Auto-Submitted") != "auto-generated" {
		t.Errorf("got %v, %v", msg.Header, err)
	}
	id := msg.Header.Get("Message-ID")
	if err := to.Send(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	if _, again, _ := s.last(t); again.Header.Get("Message-ID") != id || id == "" {
		t.Errorf("the Message-ID changed from %s to %s", id, again.Header.Get("Message-ID"))
	}
}

// If the server refuses an address, the others still get the mail. It fails only if all are refused.
func TestMailToARefusedAddress(t *testing.T) {
	t.Parallel()
	s := startMail(t, nil, false)
	s.unknown = "gone@example.com"
	e := eventOf(Origin{"campaign", "", "prod"}, failedRun("audit-trail", "not this one"))
	several := target(t, "smtp://"+s.address+"?to=dba+alerts@example.com,gone@example.com,bob@example.com", Options{})
	if err := several.Send(t.Context(), &e); err != nil {
		t.Error(err)
	}
	var got []string
	for _, r := range s.mails {
		got = append(got, r.to...)
	}
	if strings.Join(got, " ") != "dba+alerts@example.com bob@example.com" {
		t.Errorf("the mail was sent to %q", got)
	}
	alone := target(t, "smtp://"+s.address+"?to=gone@example.com", Options{})
	if err := alone.Send(t.Context(), &e); err == nil || !strings.Contains(err.Error(), "nobody is called so") {
		t.Errorf("all addresses are refused: %v", err)
	}
}

// A server may have an IPv6 address, and may require a full name, or an address, as a greeting.
func TestMailOverIPv6(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	} else {
		_ = l.Close()
	}
	s := startMailOn(t, "[::1]:0", nil, false)
	e := eventOf(Origin{"campaign", "", "prod"}, failedRun("audit-trail", "not this one"))
	if err := target(t, "smtp://"+s.address+"?to=ann@example.com", Options{}).Send(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	if r, _, _ := s.last(t); !strings.ContainsAny(r.hello, ".[") {
		t.Errorf("the greeting is %q", r.hello)
	}
}

// Names from outside cannot add headers or recipients to a mail, or end it.
func TestHostileMail(t *testing.T) {
	t.Parallel()
	s := startMail(t, nil, false)
	const hostile = "x\r\nBcc: all@example.com\r\n\r\n.\r\nQUIT\r\n=?utf-8?q?=0D=0A?="
	e := eventOf(Origin{hostile, hostile, hostile}, failedRun(hostile, hostile))
	if err := target(t, "smtp://"+s.address+"?to=ann@example.com", Options{}).Send(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	r, msg, text := s.last(t)
	if len(r.to) != 1 || msg.Header.Get("Bcc") != "" || !strings.Contains(text, e.ID) {
		t.Errorf("got %s", r.data)
	}
	for name := range msg.Header {
		if !strings.Contains("Subject Date From To Message-Id Mime-Version Content-Type Content-Transfer-Encoding "+
			"User-Agent X-Mailer Auto-Submitted", name) {
			t.Errorf("got the header %s", name)
		}
	}
}

// TLS is required except on this machine; credentials come from the URL or a file.
func TestMailOverTLS(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	certificate := ca.Server()
	o := Options{Roots: ca.Pool()}
	e := Origin{}.testEvent(time.Now())
	implicit, starttls, plain := startMail(t, &certificate, true), startMail(t, &certificate, false), startMail(t, nil,
		false)
	for name, c := range map[string]struct {
		server  *mailServer
		address string
		options Options
		policy  gomail.TLSPolicy
		want    string // in the error; "" for none
	}{
		"smtps": {implicit, "smtps://u:PLANTED@HOST?to=a@b.example", o, 0, ""},
		"a password file": {implicit, "smtps://u@HOST?to=a@b.example&password-file=" +
			url.QueryEscape(file(t, "PLANTED\n")), o, 0, ""},
		"an unknown authority": {implicit, "smtps://u:PLANTED@HOST?to=a@b.example", Options{}, 0, "unknown authority"},
		"a wrong password":     {implicit, "smtps://u:WRONG@HOST?to=a@b.example", o, 0, "*** is not the password"},
		"STARTTLS":             {starttls, "smtp://u:PLANTED@HOST?to=a@b.example", o, gomail.TLSMandatory, ""},
		"a server without it": {
			plain, "smtp://HOST?to=a@b.example", o, gomail.TLSMandatory, "does not support STARTTLS",
		},
		"STARTTLS if offered":    {starttls, "smtp://HOST?to=a@b.example", o, gomail.TLSOpportunistic, ""},
		"if it is not offered":   {plain, "smtp://HOST?to=a@b.example", o, gomail.TLSOpportunistic, ""},
		"plain, on this machine": {plain, "smtp://u:PLANTED@HOST?to=a@b.example", o, gomail.NoTLS, ""},
	} {
		t.Run(name, func(t *testing.T) {
			to := target(t, strings.Replace(c.address, "HOST", c.server.address, 1), c.options)
			to.sender.(*mailer).policy = c.policy // otherwise it depends on the host
			err := to.Send(t.Context(), &e)
			if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) ||
				(err != nil && strings.Contains(err.Error(), "WRONG")) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if err != nil {
				return
			}
			if r, _, _ := c.server.last(t); r.user != "u" && strings.Contains(c.address, "u:PLANTED@") {
				t.Errorf("got user %q", r.user)
			}
		})
	}
	for address, want := range map[string]gomail.TLSPolicy{
		"smtp://h.example?to=a@b":   gomail.TLSMandatory,
		"smtp://u@h.example?to=a@b": gomail.TLSMandatory,
		"smtp://localhost?to=a@b":   gomail.NoTLS,
	} {
		if got := target(t, address, Options{}).sender.(*mailer).policy; got != want {
			t.Errorf("%s: got %v, want %v", address, got, want)
		}
	}
	if got := target(
		t, "smtp://h.example?to=a@b", Options{Insecure: true},
	).sender.(*mailer).policy; got != gomail.TLSOpportunistic {
		t.Errorf("insecure: got %v", got)
	}
	if got := target(
		t, "smtp://u@h.example?to=a@b", Options{Insecure: true},
	).sender.(*mailer).policy; got != gomail.TLSMandatory {
		t.Errorf("insecure with a user: got %v", got)
	}
}

// A mail server that refuses, or does not answer, is an error. One that fails after it has accepted the mail is not.
func TestFailingMail(t *testing.T) {
	t.Parallel()
	e := Origin{}.testEvent(time.Now())
	s := startMail(t, nil, false)
	s.refuse = errors.New("the mailbox is full")
	err := target(t, "smtp://"+s.address+"?to=a@b.example", Options{}).Send(t.Context(), &e)
	if err == nil || !strings.Contains(err.Error(), "the mailbox is full") {
		t.Errorf("refused: got %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = target(t, "smtp://"+silent.Addr().String()+"?to=a@b.example", Options{}).Send(ctx, &e)
	if err == nil || err.Error() != "the mail was not sent in time: context deadline exceeded" {
		t.Errorf("silent: got %v", err)
	}
	if err := target(t, "smtp://"+cutAfterData(t)+"?to=a@b.example", Options{}).Send(t.Context(), &e); err != nil {
		t.Errorf("cut after the mail was accepted: got %v", err)
	}
}

// cutAfterData accepts a mail and closes the connection.
func cutAfterData(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		c := textproto.NewConn(conn)
		_ = c.PrintfLine("220 ready")
		for line := ""; line != "DATA" && err == nil; {
			if line, err = c.ReadLine(); line != "DATA" {
				_ = c.PrintfLine("250 ok")
			}
		}
		_ = c.PrintfLine("354 go on")
		_, _ = c.ReadDotBytes()
		_ = c.PrintfLine("250 accepted")
	}()
	return l.Addr().String()
}
