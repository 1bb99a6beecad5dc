package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	gomail "github.com/wneessen/go-mail"

	"github.com/cleanupd/cleanupd/service/access"
)

type mailer struct {
	host           string
	port           int
	tls            *tls.Config
	policy         gomail.TLSPolicy
	implicit       bool // whether TLS is used from the beginning of the connection
	user, password string
	passwordFile   string // read again for each mail; "" if there is none
	from           string
	to             []string
	userAgent      string
}

func (t *Target) parseMail(u *url.URL, o Options) (err error) {
	m := &mailer{
		host:      u.Hostname(),
		tls:       tlsConfig(u.Hostname(), o),
		implicit:  u.Scheme == "smtps",
		user:      u.User.Username(),
		userAgent: o.UserAgent,
	}
	m.password, _ = u.User.Password()
	port := map[string]string{"smtp": "587", "smtps": "465"}[u.Scheme]
	if m.port, err = strconv.Atoi(cmp.Or(u.Port(), port)); err != nil {
		return errors.New("the port is not a number")
	}
	if err := m.parseQuery(u); err != nil {
		return err
	}
	switch {
	case m.implicit:
		t.Protection = "TLS"
	case access.IsLoopback(u.Host):
		m.policy, t.Protection = gomail.NoTLS, "plain text"
	case o.Insecure && m.user == "":
		m.policy, t.Protection = gomail.TLSOpportunistic, "TLS if the server offers it"
	default:
		m.policy, t.Protection = gomail.TLSMandatory, "TLS"
	}
	t.Name = fmt.Sprintf("mail to %s by %s", strings.Join(m.to, ", "), net.JoinHostPort(m.host, strconv.Itoa(m.port)))
	t.sender = m
	return nil
}

func (m *mailer) parseQuery(u *url.URL) error {
	// In an address, a plus sign does not mean a space.
	query, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	if err != nil || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return errors.New("this is not smtp://HOST?to=ADDRESS&from=ADDRESS")
	}
	for name := range query {
		if !slices.Contains([]string{"to", "from", "password-file"}, name) {
			return fmt.Errorf("unknown parameter %q: use to, from or password-file", printable(name))
		}
	}
	if m.to, err = addresses(query["to"]); err != nil || len(m.to) == 0 {
		return errors.New("to must be an e-mail address: smtp://HOST?to=ADDRESS")
	}
	_, domain, _ := strings.Cut(m.to[0], "@")
	from := query["from"]
	if len(from) == 0 {
		from = []string{"cleanupd@" + domain}
	}
	senders, err := addresses(from)
	if err != nil || len(senders) != 1 {
		return errors.New("from must be one e-mail address")
	}
	m.from = senders[0]
	switch m.passwordFile = query.Get("password-file"); {
	case m.passwordFile == "":
	case m.user == "" || m.password != "":
		return errors.New("password-file needs a user without a password: smtp://USER@HOST?password-file=FILE")
	default:
		_, err = ReadSecret(m.passwordFile)
	}
	return err
}

func addresses(lists []string) (all []string, err error) {
	for _, list := range lists {
		parsed, err := mail.ParseAddressList(list)
		if err != nil {
			return nil, err
		}
		for _, a := range parsed {
			all = append(all, a.Address)
		}
	}
	return all, nil
}

func (m *mailer) send(ctx context.Context, e *Event) error {
	password := m.password
	if m.passwordFile != "" {
		secret, err := ReadSecret(m.passwordFile)
		if err != nil {
			return err
		}
		password = string(secret)
	}
	err := m.sendTo(ctx, e, password, m.to...)
	if refused := (*gomail.SendError)(nil); len(m.to) > 1 && errors.As(err, &refused) &&
		refused.Reason == gomail.ErrSMTPRcptTo && !refused.IsTemp() {
		err = m.sendEach(ctx, e, password)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("the mail was not sent in time: %w", ctx.Err())
	case password != "": // the server may quote the password
		return errors.New(strings.ReplaceAll(err.Error(), password, "***"))
	}
	return err
}

// sendEach sends each address its own mail, after one address was refused. It fails only if all addresses are
// refused: another attempt would not help the refused ones, and the others would get the mail again.
func (m *mailer) sendEach(ctx context.Context, e *Event, password string) error {
	var refused []error
	for _, to := range m.to {
		if err := m.sendTo(ctx, e, password, to); err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", to, err))
		}
	}
	if len(refused) == len(m.to) {
		return errors.Join(refused...)
	}
	for _, err := range refused {
		slog.WarnContext(ctx, "the mail server refused an address: correct or remove it", "error", err)
	}
	return nil
}

func (m *mailer) sendTo(ctx context.Context, e *Event, password string, to ...string) error {
	msg, err := m.message(e, to)
	if err != nil {
		return err
	}
	client, err := m.client(ctx, password)
	if err != nil {
		return err
	}
	if err = client.DialAndSendWithContext(ctx, msg); msg.IsDelivered() {
		return nil // the server may fail after it has accepted the mail
	}
	return err
}

// hello returns the name for the SMTP greeting. Some servers require a full host name; if this host has none, it is the
// IP address.
func (m *mailer) hello() string {
	name, err := os.Hostname()
	if err == nil && strings.Contains(name, ".") {
		return name
	}
	conn, err := net.Dial("udp", net.JoinHostPort(m.host, strconv.Itoa(m.port))) // sends nothing, because it is UDP
	if err != nil {
		return "[127.0.0.1]"
	}
	defer func() { _ = conn.Close() }()
	local, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	if strings.Contains(local, ":") {
		local = "IPv6:" + local
	}
	return "[" + local + "]"
}

// client returns a client whose connection is closed when the context ends.
func (m *mailer) client(ctx context.Context, password string) (*gomail.Client, error) {
	options := []gomail.Option{
		gomail.WithPort(m.port),
		gomail.WithHELO(m.hello()),
		gomail.WithTLSConfig(m.tls),
		gomail.WithTLSPolicy(m.policy),
		gomail.WithTimeout(sendTimeout),
		gomail.WithDialContextFunc(func(dial context.Context, network, _ string) (net.Conn, error) {
			// The client's own dialer would use an IPv6 address without brackets.
			conn, err := (&net.Dialer{}).DialContext(dial, network, net.JoinHostPort(m.host, strconv.Itoa(m.port)))
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			if !m.implicit {
				return conn, nil
			}
			secure := tls.Client(conn, m.tls)
			return secure, secure.HandshakeContext(dial)
		}),
	}
	if m.implicit {
		options = append(options, gomail.WithSSL())
	}
	if m.user != "" {
		options = append(options, gomail.WithUsername(m.user), gomail.WithPassword(password),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin))
	}
	return gomail.NewClient(m.host, options...)
}

// message gives the mail the same Message-ID in each attempt.
func (m *mailer) message(e *Event, to []string) (*gomail.Msg, error) {
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := errors.Join(msg.From(m.from), msg.To(to...)); err != nil {
		return nil, err
	}
	_, domain, _ := strings.Cut(m.from, "@")
	msg.SetMessageIDWithValue(fmt.Sprintf("%x@%s", sha256.Sum256([]byte(e.Source+" "+e.ID)), domain))
	msg.SetDateWithValue(e.Time)
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetUserAgent(m.userAgent)
	msg.Subject("cleanupd: " + e.Data.Summary)
	var body bytes.Buffer
	fmt.Fprintf(&body, "%s\n\n-- \nEvent %s of %s. Mails with the same event report the same thing.\n",
		e.Data.Description, e.ID, e.Source)
	msg.SetBodyString(gomail.TypeTextPlain, body.String())
	return msg, nil
}
