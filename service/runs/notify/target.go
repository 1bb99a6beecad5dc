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

// Per attempt.
const sendTimeout = 20 * time.Second

type Options struct {
	// The secret that signs HTTP requests, read for each of them; "": not signed.
	SecretFile string
	// nil: the system's.
	Roots *x509.CertPool
	// Other hosts than this one are allowed without TLS, unless a password would be sent.
	Insecure  bool
	UserAgent string
}

type Target struct {
	// For people, metrics and the database; has no secrets.
	Name string
	// How requests or mails are protected, for people.
	Protection string

	sender sender
	// These must not be in errors.
	secrets []string
}

type sender interface {
	send(ctx context.Context, e *Event) error
}

// Errors quote nothing of the URL that may be a secret.
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

// The error is one printable line without secrets.
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

// Without TLS a target must be on this host, or allowed.
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

// digest returns a few characters that distinguish the URLs of one host: too few to find a secret in the URL.
func digest(u url.URL) string {
	u.User = nil
	sum := sha256.Sum256([]byte(u.String()))
	return fmt.Sprintf("%x", sum[:3])
}
