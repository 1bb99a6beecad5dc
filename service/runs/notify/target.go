package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
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
	// Protection describes how requests or mails are protected.
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

// digest returns a few characters that distinguish the URLs of one host. They are too few to reveal a secret in the
// URL.
func digest(u url.URL) string {
	u.User = nil
	sum := sha256.Sum256([]byte(u.String()))
	return fmt.Sprintf("%x", sum[:3])
}

// SignatureHeader has the form t=TIME,v1=HMAC. TIME is the time of the attempt in Unix seconds, HMAC the
// HMAC-SHA256 of "TIME.BODY" in hexadecimal.
const SignatureHeader = "Cleanupd-Signature"

// maxResponse and maxHeaders limit a response, in bytes.
const (
	maxResponse = 64 << 10
	maxHeaders  = 64 << 10
)

type webhook struct {
	url, secretFile, userAgent string
	client                     *http.Client
}

func (t *Target) parseWebhook(u *url.URL, o Options) error {
	if u.Scheme == "http" {
		if err := checkPlain(u, o, "https://"); err != nil {
			return err
		}
	}
	t.Name = fmt.Sprintf("%s://%s (%s)", u.Scheme, u.Host, digest(*u))
	t.Protection = map[bool]string{true: "signed", false: "not signed"}[o.SecretFile != ""] +
		map[string]string{"http": ", plain text", "https": ", TLS"}[u.Scheme]
	t.sender = &webhook{
		url:        u.String(),
		secretFile: o.SecretFile,
		userAgent:  o.UserAgent,
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				TLSClientConfig:        tlsConfig(u.Hostname(), o),
				DisableKeepAlives:      true, // the next notification may be sent in a week
				MaxResponseHeaderBytes: maxHeaders,
			},
			// A signed request is meant for one receiver only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	return nil
}

func (w *webhook) send(ctx context.Context, e *Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is not valid")
	}
	req.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	req.Header.Set("User-Agent", w.userAgent)
	if w.secretFile != "" {
		secret, err := ReadSecret(w.secretFile)
		if err != nil {
			return err
		}
		req.Header.Set(SignatureHeader, sign(secret, body, time.Now()))
	}
	resp, err := w.client.Do(req)
	var withURL *url.Error // its text would reveal the URL
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse))
	switch resp.StatusCode / 100 {
	case 2:
		return nil
	case 3:
		return fmt.Errorf("the receiver responded %s: redirects are not followed", status(resp))
	}
	return fmt.Errorf("the receiver responded %s", status(resp))
}

// status returns the standard text of the code, because the receiver's own text may be anything.
func status(resp *http.Response) string {
	return fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

// ReadSecret removes white space around the secret. It fails if the file is empty.
func ReadSecret(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, fmt.Errorf("%s is empty", file)
	}
	return text, nil
}

func sign(secret, body []byte, at time.Time) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
