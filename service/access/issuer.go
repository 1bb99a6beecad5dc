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
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// issuerTimeout is how long an issuer may take to answer. skew is the tolerated difference between its clock and ours.
const (
	issuerTimeout = 10 * time.Second
	skew          = time.Minute

	askKeysEvery = 10 * time.Second // the least time between two requests of keys, whether or not the issuer answered
)

// errKnownKeys says that a JWT is signed with none of the issuer's keys, which have just been fetched.
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
		c.Log.Warn("the OpenID Connect issuer does not answer; it is asked again when a token arrives", "issuer", i.url,
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
	defer func() { i.asked = time.Now() }() // so that callers waiting for the lock do not ask again at once
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

// Methods returns the accepted kinds of credentials, as in Caller.By. If there are none, callers need no
// credentials.
func (a *Authenticator) Methods() (methods []string) {
	if a.certificates != nil {
		methods = append(methods, "certificate")
	}
	if a.tokens != nil {
		methods = append(methods, "token")
	}
	if a.issuer != nil {
		methods = append(methods, "jwt")
	}
	return methods
}

// Without offline_access, users would have to sign in again each time the JWT expires.
var scopes = []string{oidc.ScopeOpenID, "profile", oidc.ScopeOfflineAccess}

type Authorization struct {
	Endpoint string `json:"authorizationEndpoint"`
	ClientID string `json:"clientId"`
	Scope    string `json:"scope"`
	Audience string `json:"audience"`
}

// Authorization returns nil if sign-in is not configured. It fails with ErrUnavailable.
func (a *Authenticator) Authorization(ctx context.Context) (*Authorization, error) {
	if a.issuer == nil || a.issuer.clientID == "" {
		return nil, nil
	}
	client, err := a.issuer.client(ctx, "")
	if err != nil {
		return nil, err
	}
	return &Authorization{client.Endpoint.AuthURL, client.ClientID, strings.Join(scopes, " "), a.issuer.audience}, nil
}

// Grant is what a browser got from the issuer: the code of a redirect and its verifier, or a refresh token.
type Grant struct {
	Code         string `json:"code"`
	CodeVerifier string `json:"codeVerifier"`
	RedirectURI  string `json:"redirectUri"`
	RefreshToken string `json:"refreshToken"`
}

type Signed struct {
	Token        string `json:"token"`                  // for the header authorization: Bearer
	RefreshToken string `json:"refreshToken,omitempty"` // empty if the issuer gave none
	ExpiresIn    int64  `json:"expiresIn"`              // in seconds; 0 if the issuer does not say
}

// Exchange returns the JWT for the configured audience. It fails with ErrInvalid or ErrUnavailable.
func (a *Authenticator) Exchange(ctx context.Context, grant Grant) (*Signed, error) {
	if a.issuer == nil || a.issuer.clientID == "" {
		return nil, fmt.Errorf("%w: signing in with an issuer is not configured", ErrInvalid)
	}
	client, err := a.issuer.client(ctx, grant.RedirectURI)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, &http.Client{Timeout: issuerTimeout})
	var given *oauth2.Token
	if grant.RefreshToken != "" {
		given, err = client.TokenSource(ctx, &oauth2.Token{RefreshToken: grant.RefreshToken}).Token()
	} else {
		given, err = client.Exchange(ctx, grant.Code, oauth2.VerifierOption(grant.CodeVerifier))
	}
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError:
		return nil, fmt.Errorf("%w: the issuer refused: %s", ErrInvalid, refused.ErrorCode)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	identity, _ := given.Extra("id_token").(string)
	for _, token := range []string{given.AccessToken, identity} {
		if _, _, err = a.issuer.identify(ctx, token); err == nil {
			return &Signed{token, given.RefreshToken, given.ExpiresIn}, nil
		}
	}
	return nil, err
}

func (i *issuer) client(ctx context.Context, redirect string) (*oauth2.Config, error) {
	if _, err := i.discover(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c := &oauth2.Config{ClientID: i.clientID, Endpoint: i.endpoint, RedirectURL: redirect, Scopes: scopes}
	if i.secretFile != "" {
		secret, err := os.ReadFile(i.secretFile)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		c.ClientSecret = strings.TrimSpace(string(secret))
	}
	return c, nil
}
