// Package access authenticates callers and gives them roles; what each may call is in transport's rules. Callers
// present a client certificate, a static token, or a JWT of an OpenID Connect issuer.
package access

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Role says what a caller may do. Each role includes the lower ones.
type Role int

// The roles are in ascending order. A call that needs only the role Nobody needs no credentials.
const (
	Nobody Role = iota
	Viewer
	Operator
	Admin
)

var roleNames = []string{"nobody", "viewer", "operator", "admin"}

func (r Role) String() string { return roleNames[r] }

func ParseRole(name string) (Role, error) {
	if i := slices.Index(roleNames, name); i > 0 {
		return Role(i), nil
	}
	return Nobody, fmt.Errorf("unknown role %q: use viewer, operator or admin", name)
}

type Caller struct {
	// Subject is token:NAME, cert:NAME or jwt:ISSUER#SUB, so that callers of different kinds are never taken for each
	// other. It is empty without authentication.
	Subject string
	Role    Role
	By      string // the kind of credentials: certificate, token or jwt; empty without authentication
	Address string // the host from which the call came
}

func (c Caller) String() string {
	if c.Subject == "" {
		return c.Address
	}
	return c.Subject
}

// ErrNone means that there are no credentials, ErrInvalid that they are not valid, ErrUnavailable that they cannot be
// checked at the moment.
var (
	ErrNone = errors.New(
		"no credentials: show a client certificate or send authorization: Bearer …, as the server is configured")
	ErrInvalid     = errors.New("the credentials are not valid")
	ErrUnavailable = errors.New("could not check the credentials")
)

// Config says which credentials are accepted. Without any, everyone is an admin.
type Config struct {
	// ClientCA is a PEM file with the authorities of client certificates; if empty, client certificates are not
	// accepted.
	ClientCA string
	// ClientCRL is a PEM file with certificate revocation lists; if empty, revocation is not checked. A client
	// certificate is refused if it or an intermediate certificate is revoked, or if its issuer has no valid list in
	// the file.
	ClientCRL string
	// ClientRoles are NAME=ROLE, where NAME is the common name or a subject alternative name of a client certificate.
	// If there are none, the names viewer, operator and admin have the role of that name.
	ClientRoles []string
	// TokenFile has a line "ROLE NAME SHA256" for each static token, with the hash in hexadecimal; if empty, tokens
	// are not accepted.
	TokenFile string
	// Issuer is the URL of an OpenID Connect issuer, whose JWTs for Audience are accepted; if empty, JWTs are not
	// accepted.
	Issuer, Audience string
	// ClientID is the client id of the console at the issuer; if empty, signing in there is off. ClientSecretFile holds
	// the client's secret; it is empty if the client has none.
	ClientID, ClientSecretFile string
	// RolesClaim names the claim with the role or a list of roles. It may be a path with dots; empty means roles.
	RolesClaim string
	// IssuerRetryAfter is how long to wait before asking an issuer again after it did not answer; 0 means 5 seconds.
	IssuerRetryAfter time.Duration
	Log              *slog.Logger
}

// Authenticator identifies callers and determines their roles. What each role may do is in transport.rules.
type Authenticator struct {
	certificates *certificates
	tokens       *file[[]token]
	issuer       *issuer
}

// Open reads the files, and fails if anything is wrong with the configuration.
func Open(ctx context.Context, c Config) (a *Authenticator, err error) {
	a = &Authenticator{}
	if c.ClientCA != "" {
		if a.certificates, err = newCertificates(c); err != nil {
			return nil, err
		}
	} else if len(c.ClientRoles) > 0 || c.ClientCRL != "" {
		return nil, errors.New(
			"roles of client certificates, and what is revoked, are of no use without their authorities")
	}
	if c.TokenFile != "" {
		if a.tokens, err = open(c.Log, parseTokens, c.TokenFile); err != nil {
			return nil, err
		}
	}
	if (c.Issuer == "") != (c.Audience == "") {
		return nil, errors.New("an OpenID Connect issuer needs an audience, and an audience an issuer")
	}
	if c.Issuer != "" {
		a.issuer, err = newIssuer(ctx, c)
	}
	return a, err
}

func (a *Authenticator) Asks() bool {
	return a.certificates != nil || a.tokens != nil || a.issuer != nil
}

// Identify uses the authorization header. Without one it uses the certificates that the client presented, of which
// the client's own comes first. It fails with ErrNone, ErrInvalid or ErrUnavailable.
func (a *Authenticator) Identify(
	ctx context.Context, address string, shown []*x509.Certificate, authorization []string,
) (Caller, error) {
	c := Caller{Role: Admin, Address: address}
	var err error
	switch {
	case !a.Asks():
	case len(authorization) > 0:
		c.Subject, c.Role, c.By, err = a.bearer(ctx, authorization)
	case len(shown) > 0 && a.certificates != nil:
		c.By = "certificate"
		c.Subject, c.Role, err = a.certificates.identify(shown)
	default:
		err = ErrNone
	}
	if err != nil {
		return Caller{Address: address}, err
	}
	return c, nil
}

func (a *Authenticator) bearer(ctx context.Context, authorization []string) (
	subject string, role Role, by string, err error,
) {
	scheme, secret, _ := strings.Cut(authorization[0], " ")
	if len(authorization) > 1 || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return "", Nobody, "", fmt.Errorf("%w: send one authorization: Bearer …", ErrInvalid)
	}
	if a.tokens != nil {
		if t, ok := find(a.tokens.get(), secret); ok {
			return "token:" + t.name, t.role, "token", nil
		}
	}
	if a.issuer == nil {
		return "", Nobody, "", ErrInvalid
	}
	subject, role, err = a.issuer.identify(ctx, secret)
	return subject, role, "jwt", err
}

type contextKey struct{}

func NewContext(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// FromContext returns a caller without a role if the context carries none.
func FromContext(ctx context.Context) Caller {
	c, _ := ctx.Value(contextKey{}).(Caller)
	return c
}

// IsLoopback accepts a host with or without a port.
func IsLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
		if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.IsLoopback())
}
