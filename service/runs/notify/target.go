package notify

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/service/access"
)

// sendTimeout limits each attempt.
const sendTimeout = 20 * time.Second

type Options struct {
	// SecretFile has the secret that signs HTTP requests. It is read for each request; if empty, requests are not
	// signed.
	SecretFile string
	// Roots are the trusted authorities; nil means those of the system.
	Roots *x509.CertPool
	// Insecure allows targets without TLS on other hosts, unless a password would be sent.
	Insecure  bool
	UserAgent string
}

type Target struct {
	// Name is shown to people, in metrics and in the database. It has no secrets.
	Name string
	// Protection tells people how requests or mails are protected.
	Protection string

	sender sender
	// secrets must not appear in errors.
	secrets []string
}

type sender interface {
	send(ctx context.Context, e *Event) error
}

// ParseTarget fails with errors that quote no part of the URL that may be a secret.
func ParseTarget(address string, o Options) (*Target, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return nil, errors.New("this is not https://HOST/PATH or smtp://HOST?to=ADDRESS, or smtps://")
	}
	t := &Target{}
	if password, ok := u.User.Password(); ok {
		t.secrets = append(t.secrets, password, url.QueryEscape(password))
	}
	switch u.Scheme {
	case "http", "https":
		err = t.parseWebhook(u, o)
	case "smtp", "smtps":
		err = t.parseMail(u, o)
	default:
		err = fmt.Errorf("the URL begins with %s://, not https:// or smtp://", u.Scheme)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Hostname(), err)
	}
	return t, nil
}

// Send fails with an error that is one printable line without secrets.
func (t *Target) Send(ctx context.Context, e *Event) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	err := t.sender.send(ctx, e)
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, secret := range t.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return errors.New(printable(text))
}

// checkPlain fails if a target without TLS is neither on this host nor allowed.
func checkPlain(u *url.URL, o Options, alternative string) error {
	_, password := u.User.Password()
	switch {
	case access.IsLoopback(u.Host):
		return nil
	case password:
		return fmt.Errorf("a password is sent only over TLS, or to this machine: use %s", alternative)
	case !o.Insecure:
		return fmt.Errorf("notifications are sent only over TLS, or to this machine: use %s, or --notify-insecure",
			alternative)
	}
	return nil
}

func tlsConfig(host string, o Options) *tls.Config {
	return &tls.Config{ServerName: host, RootCAs: o.Roots, MinVersion: tls.VersionTLS12}
}

// digest returns a few characters that distinguish the URLs of one host. They are too few to find a secret in the
// URL.
func digest(u url.URL) string {
	u.User = nil
	sum := sha256.Sum256([]byte(u.String()))
	return fmt.Sprintf("%x", sum[:3])
}
