package service_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
)

func withConsole(t *testing.T, c access.Config) *server {
	t.Helper()
	return serveAs(t, database(t), false, nil, console(t, c))
}

func console(t *testing.T, c access.Config) transport.Config {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	authenticator, err := access.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return transport.Config{Authenticator: authenticator, Console: true}
}

func TestConsoleIsServed(t *testing.T) {
	t.Parallel()
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	// Another site's link leads here, without credentials.
	page := s.call(t, "GET", "/", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	want := map[string]string{
		"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; object-src 'none'; " +
			"frame-ancestors 'none'",
		"X-Content-Type-Options": "nosniff",
		"Referrer-Policy":        "no-referrer",
		"Cache-Control":          "no-cache",
		"Content-Type":           "text/html; charset=utf-8",
	}
	for name, value := range want {
		if got := page.header.Get(name); page.code != 200 || got != value {
			t.Errorf("/: %d, %s: %q, want %q", page.code, name, got, value)
		}
	}
	assets := regexp.MustCompile(`"(/assets/[^"]+)"`).FindAllStringSubmatch(page.body, -1)
	if len(assets) < 3 {
		t.Fatalf("the page has %d parts:\n%s", len(assets), page.body)
	}
	for _, asset := range assets {
		answer := s.call(t, "GET", asset[1], "", "Accept-Encoding", "gzip")
		if answer.code != 200 || !strings.Contains(answer.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, %v", asset[1], answer.code, answer.header)
		}
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/assets/", 404},
		{"GET", "/assets/nothing.js", 404},
		{"GET", "/assets/../index.html", 401},
		{"POST", "/", 405},
		{"GET", "/index.html", 401},
		{"GET", "/v1/runs", 401},
	} {
		if answer := s.call(t, c.method, c.path, ""); answer.code != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, answer.code, c.status, answer.body)
		}
	}
	if answer := s.call(t, "GET", "/v1/auth", "", "Origin", "https://example.com"); answer.code != 403 {
		t.Errorf("/v1/auth from another site: %d, want 403", answer.code)
	}
}

func TestConsoleIsOff(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	for _, path := range []string{"/", "/v1/auth", "/assets/"} {
		if answer := s.call(t, "GET", path, ""); answer.code != 404 {
			t.Errorf("%s: %d, want 404", path, answer.code)
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
		{
			"an issuer",
			access.Config{Issuer: i.url, Audience: "cleanupd", ClientID: "console"},
			`{"methods":["jwt"],"oidc":{"authorizationEndpoint":"` + i.url + `/auth","clientId":"console",` +
				`"scope":"openid profile offline_access","audience":"cleanupd"}}`,
		},
		{
			"an issuer that is not there",
			access.Config{Issuer: "http://127.0.0.1:1", Audience: "cleanupd", ClientID: "console"},
			`{"methods":["jwt"],"problem":"the OpenID Connect issuer does not answer"}`,
		},
	} {
		if got := withConsole(t, c.config).call(t, "GET", "/v1/auth", "").body; strings.TrimSpace(got) != c.want {
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
		r, err := http.NewRequestWithContext(t.Context(), "GET", i.url+"/auth?"+url.Values{
			"response_type": {"code"}, "client_id": {"console"}, "redirect_uri": {s.url + "/"}, "state": {"x"},
			"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"},
		}.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		at, err := answer.Location()
		if err != nil {
			t.Fatal(err)
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
		answer := s.call(t, "POST", "/v1/auth:exchange", body, header...)
		return answer.code, answer.body
	}
	var signed struct {
		Token, RefreshToken string
		ExpiresIn           int
	}
	good := grant(map[string]string{"code": code(), "codeVerifier": verifier, "redirectUri": s.url + "/"})
	if status, text := exchange(good); status != 200 || json.Unmarshal(
		[]byte(text), &signed,
	) != nil || signed.RefreshToken == "" ||
		signed.ExpiresIn != 3600 {
		t.Fatalf("a code: %d: %s", status, text)
	}
	if answer := s.call(t, "GET", "/v1/whoami", "", "Authorization", "Bearer "+signed.Token); answer.code != 200 ||
		!strings.Contains(answer.body, "ROLE_ADMIN") {
		t.Errorf("the token: %d: %s", answer.code, answer.body)
	}
	if status, text := exchange(grant(map[string]string{"refreshToken": signed.RefreshToken})); status != 200 ||
		!strings.Contains(text, `"token"`) {
		t.Errorf("a refresh token: %d: %s", status, text)
	}
	for _, c := range []struct {
		name, body string
		status     int
		header     []string
	}{
		{"a code twice", good, 401, nil},
		{
			"another verifier",
			grant(map[string]string{
				"code":         code(),
				"codeVerifier": oauth2.GenerateVerifier(),
				"redirectUri":  s.url + "/",
			}),
			401,
			nil,
		},
		{"another refresh token", grant(map[string]string{"refreshToken": "x"}), 401, nil},
		{"nothing", `{}`, 400, nil},
		{"both", `{"code": "x", "refreshToken": "x"}`, 400, nil},
		{"no JSON", `x`, 400, nil},
		{"an unknown field", `{"code": "x", "secret": "y"}`, 400, nil},
		{"a form", good, 415, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"another site", good, 403, []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		if status, text := exchange(c.body, c.header...); status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.name, status, c.status, text)
		}
	}
	// Strangers who try again and again are refused before the issuer is asked.
	for tries := 0; ; tries++ {
		status, _ := exchange(
			grant(map[string]string{"code": "x", "codeVerifier": verifier, "redirectUri": s.url + "/"}))
		if status == 429 {
			break
		}
		if status != 401 || tries == 1000 {
			t.Fatalf("wrong code %d: %d", tries, status)
		}
	}
	if answer := withConsole(t, access.Config{}).call(
		t, "POST", "/v1/auth:exchange", `{"code": "x"}`,
	); answer.code != 401 {
		t.Errorf("without an issuer: %d: %s", answer.code, answer.body)
	}
}
