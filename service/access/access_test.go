package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"

	"github.com/cleanupd/cleanupd/internal/testca"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "file")
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func hashOf(secret string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(secret))) }

func TestConfig(t *testing.T) {
	ca := testca.New(t)
	hash := hashOf("a")
	for name, test := range map[string]struct {
		config Config
		want   string
	}{
		"nothing":            {Config{}, ""},
		"no such token file": {Config{TokenFile: "/nowhere/tokens"}, "no such file"},
		"no role":            {Config{TokenFile: write(t, "", "root me "+hash)}, "line 1: does not begin with"},
		"no name": {
			Config{TokenFile: write(t, "", "# tokens\n\nadmin "+hash)},
			"line 3: is not ROLE NAME SHA256",
		},
		"a token, not its hash": {Config{TokenFile: write(t, "", "admin me secret")}, "line 1: does not end with"},
		"a longer hash":         {Config{TokenFile: write(t, "", "admin me "+hash+"00")}, "line 1: does not end with"},
		"one token, two roles": {
			Config{TokenFile: write(t, "", "admin me "+hash+"\nviewer me "+hash)},
			"line 2: has the same token as line 1",
		},
		"tokens": {
			Config{TokenFile: write(t, "", "# tokens\n\nadmin me "+strings.ToUpper(hash)+"\r\n")},
			"",
		},
		"no authorities":       {Config{ClientRoles: []string{"me=admin"}}, "without their authorities"},
		"no certificate in it": {Config{ClientCA: write(t, "", "hello")}, "no certificate in PEM form"},
		"no such client role":  {Config{ClientCA: ca.File(), ClientRoles: []string{"me=root"}}, `unknown role "root"`},
		"no client role":       {Config{ClientCA: ca.File(), ClientRoles: []string{"admin"}}, "is not NAME=ROLE"},
		"nobody's role":        {Config{ClientCA: ca.File(), ClientRoles: []string{"=admin"}}, "is not NAME=ROLE"},
		"two roles": {
			Config{ClientCA: ca.File(), ClientRoles: []string{"me=admin", "me=viewer"}},
			"two roles",
		},
		"a name with an = in it": {Config{ClientCA: ca.File(), ClientRoles: []string{"uri=me=admin"}}, ""},
		"no CRL in it":           {Config{ClientCA: ca.File(), ClientCRL: ca.File()}, "want X509 CRL"},
		"an empty CRL file":      {Config{ClientCA: ca.File(), ClientCRL: write(t, "", "")}, "no X509 CRL in PEM form"},
		"a CRL without a CA":     {Config{ClientCRL: ca.CRL(time.Now().Add(time.Hour))}, "without their authorities"},
		"a CRL":                  {Config{ClientCA: ca.File(), ClientCRL: ca.CRL(time.Now().Add(time.Hour))}, ""},
		"no audience":            {Config{Issuer: "https://issuer.example"}, "needs an audience"},
		"no issuer":              {Config{Audience: "me"}, "needs an audience"},
		"issuer in plain text": {
			Config{Issuer: "http://issuer.example", Audience: "me"},
			"is not the URL of an issuer",
		},
		"issuer without a host": {Config{Issuer: "https:", Audience: "me"}, "is not the URL of an issuer"},
		"issuer that is not up": {Config{Issuer: "http://127.0.0.1:1", Audience: "me"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.Log = slog.New(slog.DiscardHandler)
			_, err := Open(t.Context(), test.config)
			if (test.want == "" && err != nil) ||
				(test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want))) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells a token: %v", err)
			}
		})
	}
}

// A token file is reloaded when it changes; an invalid one is ignored, and the log says so without the tokens.
func TestTokensAreReadAgain(t *testing.T) {
	path := write(t, "", "viewer old "+hashOf("one"))
	var log bytes.Buffer
	guard, err := Open(t.Context(), Config{TokenFile: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(secret string) string {
		guard.tokens.loaded = time.Time{} // a second has passed
		c, err := guard.Identify(t.Context(), "host", nil, []string{"Bearer " + secret})
		if err != nil {
			return "nobody"
		}
		return c.Subject + " " + c.Role.String()
	}
	want := func(one, two string) {
		t.Helper()
		if got := [2]string{ask("one"), ask("two")}; got != [2]string{one, two} {
			t.Errorf("got %q, want %q and %q", got, one, two)
		}
	}
	want("token:old viewer", "nobody")
	write(t, path, "viewer old "+hashOf("one")+"\nadmin new "+hashOf("two"))
	want("token:old viewer", "token:new admin")
	write(t, path, "viewer old secret-three")
	want("token:old viewer", "token:new admin")
	if !strings.Contains(log.String(), "line 1") || strings.Contains(log.String(), "secret-three") {
		t.Errorf("the log says %s", log.String())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("token:old viewer", "token:new admin")
	write(t, path, "operator new "+hashOf("two"))
	want("nobody", "token:new operator")
}

// A new certificate is used without a restart, and only with its own key.
func TestCertificateIsReadAgain(t *testing.T) {
	ca := testca.New(t)
	one, two := ca.Server(), ca.Server()
	cert, key := ca.Files(one)
	newCert, newKey := ca.Files(two)
	pair, err := open(slog.New(slog.DiscardHandler), parsePair, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	serves := func(want tls.Certificate) {
		t.Helper()
		pair.loaded = time.Time{}
		if got := pair.get(); !bytes.Equal(got.Certificate[0], want.Certificate[0]) {
			t.Error("it serves another certificate")
		}
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	serves(one)
	move(newCert, cert)
	serves(one)
	move(newKey, key)
	serves(two)
	if _, err := ServerTLS(slog.New(slog.DiscardHandler), cert, cert); err == nil {
		t.Error("a certificate is taken for its key")
	}
}

// Authorities are evaluated at the time of the call: a new one counts at once, an old one no longer.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	old, young := testca.New(t), testca.New(t)
	path := old.File()
	guard, err := Open(t.Context(),
		Config{ClientCA: path, ClientRoles: []string{"me=admin"}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ca *testca.CA) error {
		guard.certificates.authorities.loaded = time.Time{}
		_, err := guard.Identify(t.Context(), "host", []*x509.Certificate{ca.Client("me").Leaf}, nil)
		return err
	}
	if err := ask(old); err != nil || !errors.Is(ask(young), ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := os.Rename(young.File(), path); err != nil {
		t.Fatal(err)
	}
	if err := ask(young); err != nil || !errors.Is(ask(old), ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// Without roles for names, the name of a certificate is its role.
func TestCertificatesNamedAfterRoles(t *testing.T) {
	ca := testca.New(t)
	for name, want := range map[string]Role{"admin": Admin, "viewer": Viewer, "nobody": Nobody, "root": Nobody} {
		for given, want := range map[string]Role{"": want, "root=operator": map[string]Role{"root": Operator}[name]} {
			config := Config{ClientCA: ca.File(), Log: slog.New(slog.DiscardHandler)}
			if given != "" {
				config.ClientRoles = []string{given}
			}
			guard, err := Open(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			c, err := guard.Identify(t.Context(), "host", []*x509.Certificate{ca.Client(name).Leaf}, nil)
			if err != nil || c.Role != want || c.Subject != "cert:"+name {
				t.Errorf("%s with %q: %+v, %v", name, given, c, err)
			}
		}
	}
}

// An issuer may start later, and change its keys.
func TestIssuerChangesItsKeys(t *testing.T) {
	var keys []*rsa.PrivateKey
	for range 2 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	var up atomic.Bool
	server := &oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: keys[0].Public(), KeyID: "0", Algorithm: oidc.RS256}},
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, r)
	}))
	defer web.Close()
	server.SetIssuer(web.URL)
	guard, err := Open(t.Context(),
		Config{Issuer: web.URL, Audience: "me", RolesClaim: "access.roles", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(n int) (Caller, error) {
		claims := fmt.Sprintf(
			`{"iss": %q, "aud": ["other", "me"], "sub": "jane", "exp": %d, "access": {"roles": ["operator"]}}`, web.URL,
			time.Now().Add(time.Hour).Unix())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // as at the end of a call; the next one needs a context of its own
		return guard.Identify(ctx, "host", nil,
			[]string{"Bearer " + oidctest.SignIDToken(keys[n], fmt.Sprint(n), oidc.RS256, claims)})
	}
	if _, err := ask(0); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without an issuer: %v", err)
	}
	up.Store(true)
	guard.issuer.asked = time.Time{} // some seconds have passed
	if c, err := ask(0); err != nil || c.Subject != "jwt:"+web.URL+"#jane" || c.Role != Operator || c.By != "jwt" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ask(1); !errors.Is(err, ErrInvalid) {
		t.Errorf("with a key that the issuer does not have: %v", err)
	}
	server.PublicKeys = append(server.PublicKeys,
		oidctest.PublicKey{PublicKey: keys[1].Public(), KeyID: "1", Algorithm: oidc.RS256})
	if _, err := ask(1); !errors.Is(err, ErrInvalid) {
		t.Errorf("with a key that the issuer has had since it was last asked: %v", err)
	}
	guard.issuer.keys.asked = time.Time{} // some seconds have passed
	_, err = ask(1)
	// the previous result may still be cached
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); _, err = ask(1) {
	}
	if err != nil {
		t.Errorf("with the issuer's new key: %v", err)
	}
}

// JWTs that are signed with unknown keys do not make the server fetch the keys each time.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	var keys []*rsa.PrivateKey
	for range 2 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	server := &oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: keys[0].Public(), KeyID: "0", Algorithm: oidc.RS256}},
	}
	var asked atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		server.ServeHTTP(w, r)
	}))
	defer web.Close()
	server.SetIssuer(web.URL)
	guard, err := Open(t.Context(), Config{Issuer: web.URL, Audience: "me", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	begun, before := time.Now(), asked.Load()
	for i := range 200 {
		n := min(i%100, 1) // every hundredth is signed with the issuer's
		claims := fmt.Sprintf(`{"iss": %q, "aud": "me", "sub": "jane", "exp": %d}`, web.URL,
			time.Now().Add(time.Hour).Unix())
		_, err := guard.Identify(t.Context(), "host", nil,
			[]string{"Bearer " + oidctest.SignIDToken(keys[n], fmt.Sprint(i%100), oidc.RS256, claims)})
		if (n == 0 && err != nil) || (n == 1 && !errors.Is(err, ErrInvalid)) {
			t.Errorf("key %d: %v", i%100, err)
		}
	}
	if n := asked.Load() - before; n > 1+int64(time.Since(begun)/askKeysEvery) {
		t.Errorf("it was asked %d times in %s", n, time.Since(begun))
	}
}

// A JWT whose key cannot be fetched may be valid, so the error is ErrUnavailable.
func TestIssuerWithoutItsKeys(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	server := &oidctest.Server{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/openid-configuration") {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, r)
	}))
	defer web.Close()
	server.SetIssuer(web.URL)
	guard, err := Open(t.Context(), Config{Issuer: web.URL, Audience: "me", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	claims := fmt.Sprintf(`{"iss": %q, "aud": "me", "sub": "jane", "exp": %d}`, web.URL,
		time.Now().Add(time.Hour).Unix())
	if _, err := guard.Identify(
		t.Context(), "host", nil, []string{"Bearer " + oidctest.SignIDToken(key, "0", oidc.RS256, claims)},
	); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// Callers that wait for a slow issuer do not ask it again, one after another.
func TestIssuerThatIsSlow(t *testing.T) {
	t.Parallel()
	const retryAfter = 2 * time.Second
	var asked atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		time.Sleep(retryAfter + 500*time.Millisecond)
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	}))
	defer web.Close()
	guard, err := Open(t.Context(),
		Config{Issuer: web.URL, Audience: "me", IssuerRetryAfter: retryAfter, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := guard.Identify(t.Context(), "host", nil, []string{"Bearer x.y.z"}); !errors.Is(
			err, ErrUnavailable,
		) {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestRoleOfClaim(t *testing.T) {
	for _, test := range []struct {
		claims map[string]any
		path   string
		want   Role
	}{
		{map[string]any{"roles": "admin"}, "roles", Admin},
		{map[string]any{"roles": []any{"viewer", "operator", 7, "root"}}, "roles", Operator},
		{map[string]any{"roles": "Admin"}, "roles", Nobody},
		{map[string]any{"roles": "nobody"}, "roles", Nobody},
		{map[string]any{"roles": 3}, "roles", Nobody},
		{map[string]any{"role": "admin"}, "roles", Nobody},
		{map[string]any{"realm_access": map[string]any{"roles": []any{"viewer"}}}, "realm_access.roles", Viewer},
		{map[string]any{"https://example.com/roles": "viewer"}, "https://example.com/roles", Viewer},
		{map[string]any{"realm_access": "admin"}, "realm_access.roles", Nobody},
		{nil, "a.b.c", Nobody},
	} {
		if got := roleOf(at(test.claims, test.path)); got != test.want {
			t.Errorf("%v at %s: %s, want %s", test.claims, test.path, got, test.want)
		}
	}
}

// Whatever a token file says, exactly the tokens whose hashes it contains are found.
func FuzzTokens(f *testing.F) {
	f.Add("admin me "+hashOf("a"), "a")
	f.Add("# comment\n\nviewer x "+hashOf("b")+"\r\noperator y "+hashOf("c"), "c")
	f.Add("viewer x "+hashOf(""), "")
	f.Add("admin  \t me "+strings.ToUpper(hashOf("a")), "A")
	f.Fuzz(func(t *testing.T, text, secret string) {
		tokens, err := parseTokens([]byte(text))
		if err != nil {
			return
		}
		found, ok := find(tokens, secret)
		if named := strings.Contains(strings.ToLower(text), hashOf(secret)); (ok && !named) ||
			(ok && (found.role == Nobody || found.name == "")) {
			t.Errorf("%q is found as %v", secret, found)
		}
		again, err := parseTokens([]byte(text + "\noperator new " + hashOf(secret)))
		if ok != (err != nil) {
			t.Errorf("%q was found: %v, and can be added: %v", secret, ok, err)
		}
		if found, added := find(again, secret); err == nil && (!added || found.role != Operator) {
			t.Errorf("%q is not found after it was added", secret)
		}
	})
}

// Callers who have the same name by different kinds of credentials, or one that looks like that of another kind, are
// not the same.
func TestSubjectsOfDifferentKinds(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	server := &oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "0", Algorithm: oidc.RS256}},
	}
	web := httptest.NewServer(server)
	defer web.Close()
	server.SetIssuer(web.URL)
	ca := testca.New(t)
	guard, err := Open(t.Context(), Config{
		Issuer:    web.URL,
		Audience:  "me",
		ClientCA:  ca.File(),
		TokenFile: write(t, "", "viewer ops "+hashOf("one")+"\nviewer cert:ops "+hashOf("two")),
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	jwt := func(subject string) []string {
		return []string{
			"Bearer " + oidctest.SignIDToken(key, "0", oidc.RS256,
				fmt.Sprintf(`{"iss": %q, "aud": "me", "sub": %q, "exp": %d}`, web.URL, subject,
					time.Now().Add(time.Hour).Unix())),
		}
	}
	for want, shows := range map[string]struct {
		certificate   string
		authorization []string
	}{
		"token:ops":                     {"", []string{"Bearer one"}},
		"token:cert:ops":                {"", []string{"Bearer two"}},
		"cert:ops":                      {"ops", nil},
		"cert:token:ops":                {"token:ops", nil},
		"jwt:" + web.URL + "#ops":       {"", jwt("ops")},
		"jwt:" + web.URL + "#token:ops": {"", jwt("token:ops")},
	} {
		var shown []*x509.Certificate
		if shows.certificate != "" {
			shown = append(shown, ca.Client(shows.certificate).Leaf)
		}
		if c, err := guard.Identify(t.Context(), "host", shown, shows.authorization); err != nil || c.Subject != want ||
			c.String() != want {
			t.Errorf("%q: %q, %v", want, c.Subject, err)
		}
	}
}
