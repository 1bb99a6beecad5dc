package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

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
