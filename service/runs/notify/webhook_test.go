package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func target(t *testing.T, address string, o Options) *Target {
	t.Helper()
	parsed, err := ParseTarget(address, o)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// verify verifies a signature as the documentation describes.
func verify(header string, body, secret []byte, now time.Time) bool {
	t, v1, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",v1=")
	seconds, err := strconv.ParseInt(t, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	given, err := hex.DecodeString(v1)
	return err == nil && hmac.Equal(given, mac.Sum(nil))
}

// A webhook gets a CloudEvent in the structured mode, with a signature that can be verified.
func TestWebhook(t *testing.T) {
	t.Parallel()
	secret := file(t, " a secret\n")
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var e map[string]any
		if err := json.Unmarshal(
			body, &e,
		); err != nil || e["specversion"] != "1.0" || e["type"] != "io.github.cleanupd.test" ||
			e["id"] == "" ||
			e["source"] != "/cleanupd/prod" {
			t.Errorf("got %v %s", err, body)
		}
		if user, password, _ := r.BasicAuth(); user != "u" || password != "p" {
			t.Errorf("got user %s %s", user, password)
		}
		if r.Method != http.MethodPost ||
			r.Header.Get("Content-Type") != "application/cloudevents+json; charset=utf-8" ||
			r.Header.Get("User-Agent") != "cleanupd/1" ||
			r.URL.RequestURI() != "/path?k=v" {
			t.Errorf("got %s %s %v", r.Method, r.URL, r.Header)
		}
		header := r.Header.Get(SignatureHeader)
		if !verify(header, body, []byte("a secret"), time.Now()) {
			t.Errorf("the signature %s is not valid", header)
		}
		if verify(header, append(body, ' '), []byte("a secret"), time.Now()) ||
			verify(header, body, []byte("another"), time.Now()) ||
			verify(header, body, []byte("a secret"), time.Now().Add(time.Hour)) {
			t.Error("a wrong signature is valid")
		}
	}))
	defer s.Close()
	address := strings.Replace(s.URL, "://", "://u:p@", 1) + "/path?k=v"
	if err := Test(
		t.Context(), target(t, address, Options{SecretFile: secret, UserAgent: "cleanupd/1"}), Origin{Instance: "prod"},
	); err != nil {
		t.Error(err)
	}
}

// A receiver's failure is an error without secrets, and no redirect is followed: the request is signed for one
// receiver.
func TestFailingWebhooks(t *testing.T) {
	t.Parallel()
	var redirected atomic.Bool
	mux := http.NewServeMux()
	respond := func(path string, do http.HandlerFunc) { mux.HandleFunc(path, do) }
	respond("/500/PLANTED", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		_, _ = w.Write([]byte("PLANTED\x1b[2J"))
	})
	respond("/307/PLANTED", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	respond("/302/PLANTED",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })
	respond("/elsewhere", func(http.ResponseWriter, *http.Request) { redirected.Store(true) })
	respond("/cut/PLANTED", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	respond("/stall/PLANTED", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client has gone
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	for path, want := range map[string]string{
		"/500":   "the receiver responded 500 Internal Server Error",
		"/307":   "the receiver responded 307 Temporary Redirect: redirects are not followed",
		"/302":   "the receiver responded 302 Found: redirects are not followed",
		"/cut":   "EOF",
		"/stall": "context deadline exceeded",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if path == "/stall" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		address := strings.Replace(s.URL, "://", "://u:PLANTED@", 1) + path + "/PLANTED"
		err := Test(ctx, target(t, address, Options{}), Origin{})
		cancel()
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	if redirected.Load() {
		t.Error("a redirect was followed")
	}
	err := Test(t.Context(), target(t, "http://127.0.0.1:1/PLANTED", Options{}), Origin{})
	if err == nil || strings.Contains(err.Error(), "PLANTED") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("without a server: got %v", err)
	}
	gone := file(t, "")
	err = Test(t.Context(), target(t, s.URL+"/elsewhere", Options{SecretFile: gone}), Origin{})
	if err == nil || !strings.Contains(err.Error(), "is empty") || redirected.Load() {
		t.Errorf("without a secret: got %v", err)
	}
}
