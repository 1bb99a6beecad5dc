package service_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/access"
)

// withConsole is a replica that serves the console, to whom the access says.
func withConsole(t *testing.T, c access.Config) *server {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	guard, err := access.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return serveAs(t, pgtest.Campaign(t), false, nil, service.ServerConfig{Guard: guard, Console: true})
}

// ask sends a request, and returns the answer with its body.
func ask(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

func TestConsoleIsServed(t *testing.T) {
	t.Parallel()
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	// Another site's link leads here, without credentials.
	page, html := ask(t, "GET", s.url+"/", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	want := map[string]string{
		"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; object-src 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache", "Content-Type": "text/html; charset=utf-8",
	}
	for name, value := range want {
		if got := page.Header.Get(name); page.StatusCode != 200 || got != value {
			t.Errorf("/: %d, %s: %q, want %q", page.StatusCode, name, got, value)
		}
	}
	assets := regexp.MustCompile(`"(/assets/[^"]+)"`).FindAllStringSubmatch(html, -1)
	if len(assets) < 3 {
		t.Fatalf("the page has %d parts:\n%s", len(assets), html)
	}
	for _, asset := range assets {
		answer, _ := ask(t, "GET", s.url+asset[1], "", "Accept-Encoding", "gzip")
		if answer.StatusCode != 200 || !strings.Contains(answer.Header.Get("Cache-Control"), "immutable") || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %v", asset[1], answer.StatusCode, answer.Header)
		}
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{{"GET", "/assets/", 404}, {"GET", "/assets/nothing.js", 404}, {"GET", "/assets/../index.html", 307}, {"POST", "/", 405}, {"GET", "/index.html", 401}, {"GET", "/v1/runs", 401}} {
		if answer, text := ask(t, c.method, s.url+c.path, ""); answer.StatusCode != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, answer.StatusCode, c.status, text)
		}
	}
	if answer, _ := ask(t, "GET", s.url+"/v1/auth", "", "Origin", "https://example.com"); answer.StatusCode != 403 {
		t.Errorf("/v1/auth from another site: %d, want 403", answer.StatusCode)
	}
}

func TestConsoleIsOff(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	for _, path := range []string{"/", "/v1/auth", "/assets/"} {
		if answer, _ := ask(t, "GET", s.url+path, ""); answer.StatusCode != 404 {
			t.Errorf("%s: %d, want 404", path, answer.StatusCode)
		}
	}
}

func TestSignInIsDescribed(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	for _, c := range []struct {
		name   string
		config access.Config
		want   string
	}{
		{"nothing", access.Config{}, `{"methods":[]}`},
		{"a token", access.Config{TokenFile: tokenFile(t)}, `{"methods":["token"]}`},
		{"JWTs alone", access.Config{Issuer: i.url, Audience: "cleanupd"}, `{"methods":["jwt"]}`},
		{"an issuer", access.Config{Issuer: i.url, Audience: "cleanupd", ClientID: "console"},
			`{"methods":["jwt"],"oidc":{"authorizationEndpoint":"` + i.url + `/auth","clientId":"console","scope":"openid profile offline_access","audience":"cleanupd"}}`},
		{"an issuer that is not there", access.Config{Issuer: "http://127.0.0.1:1", Audience: "cleanupd", ClientID: "console"}, `{"methods":["jwt"],"problem":"the OpenID Connect issuer does not answer"}`},
	} {
		if _, got := ask(t, "GET", withConsole(t, c.config).url+"/v1/auth", ""); strings.TrimSpace(got) != c.want {
			t.Errorf("with %s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestExchange(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := withConsole(t, access.Config{Issuer: i.url, Audience: "cleanupd", ClientID: "console"})
	verifier := oauth2.GenerateVerifier()
	code := func() string {
		answer, text := ask(t, "GET", i.url+"/auth?"+url.Values{"response_type": {"code"}, "client_id": {"console"}, "redirect_uri": {s.url + "/"}, "state": {"x"},
			"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"}}.Encode(), "")
		at, err := answer.Location()
		if err != nil {
			t.Fatal(err, text)
		}
		return at.Query().Get("code")
	}
	grant := func(fields map[string]string) string {
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	exchange := func(body string, header ...string) (int, string) {
		if len(header) == 0 {
			header = []string{"Content-Type", "application/json"}
		}
		answer, text := ask(t, "POST", s.url+"/v1/auth:exchange", body, header...)
		return answer.StatusCode, text
	}
	var signed struct{ Token, RefreshToken string }
	good := grant(map[string]string{"code": code(), "codeVerifier": verifier, "redirectUri": s.url + "/"})
	if status, text := exchange(good); status != 200 || json.Unmarshal([]byte(text), &signed) != nil || signed.RefreshToken == "" {
		t.Fatalf("a code: %d: %s", status, text)
	}
	if answer, text := ask(t, "GET", s.url+"/v1/whoami", "", "Authorization", "Bearer "+signed.Token); answer.StatusCode != 200 || !strings.Contains(text, "ROLE_ADMIN") {
		t.Errorf("the token: %d: %s", answer.StatusCode, text)
	}
	if status, text := exchange(grant(map[string]string{"refreshToken": signed.RefreshToken})); status != 200 || !strings.Contains(text, `"token"`) {
		t.Errorf("a refresh token: %d: %s", status, text)
	}
	for _, c := range []struct {
		name, body string
		status     int
		header     []string
	}{
		{"a code twice", good, 401, nil},
		{"another verifier", grant(map[string]string{"code": code(), "codeVerifier": oauth2.GenerateVerifier(), "redirectUri": s.url + "/"}), 401, nil},
		{"another refresh token", grant(map[string]string{"refreshToken": "x"}), 401, nil},
		{"nothing", `{}`, 400, nil},
		{"both", `{"code": "x", "refreshToken": "x"}`, 400, nil},
		{"no JSON", `x`, 400, nil},
		{"an unknown field", `{"code": "x", "secret": "y"}`, 400, nil},
		{"a form", good, 415, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"another site", good, 403, []string{"Content-Type", "application/json", "Sec-Fetch-Site", "cross-site"}},
	} {
		if status, text := exchange(c.body, c.header...); status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.name, status, c.status, text)
		}
	}
	if answer, text := ask(t, "POST", withConsole(t, access.Config{}).url+"/v1/auth:exchange", `{"code": "x"}`, "Content-Type", "application/json"); answer.StatusCode != 401 {
		t.Errorf("without an issuer: %d: %s", answer.StatusCode, text)
	}
}
