package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// issuerTimeout is how long an issuer may take to answer. skew is by how much its clock may differ from ours.
const (
	issuerTimeout = 10 * time.Second
	skew          = time.Minute

	askKeysEvery = 10 * time.Second // the least time between two requests of keys, whether or not the issuer answered
)

// errKnownKeys says that a JWT is signed with none of the issuer's keys, although these have just been fetched.
var errKnownKeys = errors.New("the issuer has no such key")

// seldom limits how often the issuer's keys are fetched, no matter how many JWTs with unknown keys arrive.
type seldom struct {
	mu       sync.Mutex
	asked    time.Time
	answered bool
}

func (s *seldom) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case time.Since(s.asked) >= askKeysEvery:
	case s.answered:
		return nil, errKnownKeys
	default:
		return nil, errors.New("the issuer did not answer")
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	s.asked, s.answered = time.Now(), err == nil && answer.StatusCode == http.StatusOK
	return answer, err
}

// issuer fetches its keys when they are first needed, and again when a JWT is signed with an unknown key.
type issuer struct {
	url, audience, claim string
	clientID, secretFile string
	retryAfter           time.Duration
	log                  *slog.Logger

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil until the issuer has been discovered
	endpoint oauth2.Endpoint       // where browsers sign in
	asked    time.Time             // when the last request ended, whether or not it was answered
	keys     seldom
}

func newIssuer(ctx context.Context, c Config) (*issuer, error) {
	u, err := url.Parse(c.Issuer)
	if err != nil || u.Host == "" || (u.Scheme != "https" && (u.Scheme != "http" || !IsLoopback(u.Host))) {
		return nil, fmt.Errorf("%q is not the URL of an issuer: https://… (http only on loopback)", c.Issuer)
	}
	i := &issuer{
		url:        c.Issuer,
		audience:   c.Audience,
		claim:      c.RolesClaim,
		clientID:   c.ClientID,
		secretFile: c.ClientSecretFile,
		retryAfter: cmp.Or(c.IssuerRetryAfter, 5*time.Second),
		log:        c.Log,
	}
	if i.claim == "" {
		i.claim = "roles"
	}
	if _, err := i.discover(ctx); err != nil {
		c.Log.Warn("the OpenID Connect issuer does not answer; it is asked again when a token comes", "issuer", i.url,
			"error", err)
	}
	return i, nil
}

// discover asks the issuer where its keys are. Once it has answered, it is not asked again.
func (i *issuer) discover(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.verifier != nil:
		return i.verifier, nil
	case time.Since(i.asked) < i.retryAfter:
		return nil, errors.New("the issuer did not answer")
	}
	defer func() { i.asked = time.Now() }() // for callers that wait for the lock meanwhile
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), &http.Client{Timeout: issuerTimeout})
	provider, err := oidc.NewProvider(ctx, i.url)
	if err != nil {
		return nil, err
	}
	i.endpoint = provider.Endpoint()
	ctx = oidc.ClientContext(ctx, &http.Client{Timeout: issuerTimeout, Transport: &i.keys})
	i.verifier = provider.VerifierContext(ctx,
		&oidc.Config{ClientID: i.audience, Now: func() time.Time { return time.Now().Add(-skew) }})
	return i.verifier, nil
}

func (i *issuer) identify(ctx context.Context, raw string) (subject string, role Role, err error) {
	verifier, err := i.discover(ctx)
	if err != nil {
		return "", Nobody, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	verified, err := verifier.Verify(ctx, raw)
	// go-oidc does not wrap the error here, so its text is compared.
	if err != nil && strings.HasPrefix(err.Error(), "failed to verify signature: fetching keys") &&
		!strings.Contains(err.Error(), errKnownKeys.Error()) {
		return "", Nobody, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return "", Nobody, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if verified.Subject == "" {
		return "", Nobody, fmt.Errorf("%w: the JWT has no sub", ErrInvalid)
	}
	var begins struct { // go-oidc would accept a difference of five minutes here
		NotBefore json.Number `json:"nbf"`
	}
	if err := verified.Claims(&begins); err != nil {
		return "", Nobody, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if from, err := begins.NotBefore.Float64(); begins.NotBefore != "" &&
		(err != nil || from > float64(time.Now().Add(skew).Unix())) {
		return "", Nobody, fmt.Errorf("%w: the JWT is not valid yet", ErrInvalid)
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return "", Nobody, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return "jwt:" + i.url + "#" + verified.Subject, roleOf(at(claims, i.claim)), nil
}

// at returns a claim by its name, or by a path with dots.
func at(claims map[string]any, path string) any {
	if value, ok := claims[path]; ok {
		return value
	}
	first, rest, found := strings.Cut(path, ".")
	inner, ok := claims[first].(map[string]any)
	if !found || !ok {
		return nil
	}
	return at(inner, rest)
}

// roleOf reads a claim that is a string or a list of strings. The highest role counts.
func roleOf(claim any) (role Role) {
	switch claim := claim.(type) {
	case string:
		role, _ = ParseRole(claim)
	case []any:
		for _, one := range claim {
			if name, ok := one.(string); ok {
				role = max(role, roleOf(name))
			}
		}
	}
	return role
}
