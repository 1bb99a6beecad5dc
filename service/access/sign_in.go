package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Methods returns the accepted kinds of credentials, as in Caller.By. If there are none, callers need no
// credentials.
func (g *Guard) Methods() (methods []string) {
	if g.certificates != nil {
		methods = append(methods, "certificate")
	}
	if g.tokens != nil {
		methods = append(methods, "token")
	}
	if g.issuer != nil {
		methods = append(methods, "jwt")
	}
	return methods
}

// scopes includes offline_access, because otherwise a browser would have to sign in again once the JWT has expired.
var scopes = []string{oidc.ScopeOpenID, "profile", oidc.ScopeOfflineAccess}

type Authorization struct {
	Endpoint string `json:"authorizationEndpoint"`
	ClientID string `json:"clientId"`
	Scope    string `json:"scope"`
	Audience string `json:"audience"`
}

// Authorization returns nil if sign-in is not configured. It fails with ErrUnavailable.
func (g *Guard) Authorization(ctx context.Context) (*Authorization, error) {
	if g.issuer == nil || g.issuer.clientID == "" {
		return nil, nil
	}
	client, err := g.issuer.client(ctx, "")
	if err != nil {
		return nil, err
	}
	return &Authorization{client.Endpoint.AuthURL, client.ClientID, strings.Join(scopes, " "), g.issuer.audience}, nil
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
func (g *Guard) Exchange(ctx context.Context, grant Grant) (*Signed, error) {
	if g.issuer == nil || g.issuer.clientID == "" {
		return nil, fmt.Errorf("%w: signing in with an issuer is not configured", ErrInvalid)
	}
	client, err := g.issuer.client(ctx, grant.RedirectURI)
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
		if _, _, err = g.issuer.identify(ctx, token); err == nil {
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
