package serve

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
)

type accessConfig struct {
	access.Config
	certificate, key string
	insecure         bool
}

func (c *accessConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.certificate, "tls-cert", "",
		"the certificate of both listeners, with its chain: a PEM file, reloaded when it changes; without it they "+
			"speak plain text")
	f.StringVar(&c.key, "tls-key", "", "the key of --tls-cert: a PEM file, reloaded when it changes")
	f.StringVar(&c.ClientCA, "tls-client-ca", "",
		"the authorities of client certificates: a PEM file, reloaded when it changes; without it none are accepted")
	f.StringVar(&c.ClientCRL, "tls-client-crl", "",
		"the certificates that the authorities of --tls-client-ca have revoked: a PEM file of CRLs, reloaded when it "+
			"changes; with it, a client certificate whose issuer has no current CRL there is also refused")
	f.StringArrayVar(&c.ClientRoles, "tls-client-role", nil,
		"NAME=ROLE: the role of the client certificates with this common name or subject alternative name: viewer, "+
			"operator or admin; may be repeated (default: the names viewer, operator and admin have the role of that "+
			"name)")
	f.StringVar(&c.TokenFile, "token-file", "",
		`static tokens: a file with lines "ROLE NAME SHA256-OF-TOKEN", reloaded when it changes; callers send `+
			"authorization: Bearer TOKEN")
	f.StringVar(&c.Issuer, "oidc-issuer", "",
		"the URL of an OpenID Connect issuer, whose JWTs are accepted: authorization: Bearer JWT")
	f.StringVar(&c.Audience, "oidc-audience", "", "the audience that a JWT must name")
	f.StringVar(&c.RolesClaim, "oidc-roles-claim", "roles",
		"the claim of a JWT that holds the role, or a list of roles: its name, or its path with dots")
	f.StringVar(&c.ClientID, "oidc-client-id", "",
		"the id of the console at the issuer, so that people sign in there (authorization code with PKCE); without it "+
			"they paste a token")
	f.StringVar(&c.ClientSecretFile, "oidc-client-secret-file", "",
		"the file with the client's secret, if the issuer requires one; it is read at each sign-in")
	f.BoolVar(&c.insecure, "insecure", false,
		"listen on addresses other than loopback without TLS or client authentication")
}

func (c *accessConfig) check() error {
	switch {
	case (c.certificate == "") != (c.key == ""):
		return flags.Errorf("--tls-cert and --tls-key must be given together")
	case c.certificate == "" && c.ClientCA != "":
		return flags.Errorf(
			"--tls-client-ca needs --tls-cert and --tls-key: a client presents its certificate over TLS")
	case c.ClientID != "" && c.Issuer == "":
		return flags.Errorf("--oidc-client-id needs --oidc-issuer")
	case c.ClientSecretFile != "" && c.ClientID == "":
		return flags.Errorf("--oidc-client-secret-file needs --oidc-client-id")
	}
	return nil
}

// serverConfig fails if the configuration would be insecure.
func (c *accessConfig) serverConfig(
	ctx context.Context, log *slog.Logger, grpc, http net.Listener,
) (out transport.Config, err error) {
	c.Log = log
	out = transport.Config{Log: log, HTTPLoopback: access.IsLoopback(http.Addr().String())}
	if out.Authenticator, err = access.Open(ctx, c.Config); err != nil {
		return out, flags.Errorf(
			"--tls-client-ca, --tls-client-crl, --tls-client-role, --token-file, --oidc-issuer, --oidc-audience: %w",
			err)
	}
	if c.certificate != "" {
		if out.TLS, err = access.ServerTLS(log, c.certificate, c.key); err != nil {
			return out, flags.Errorf("--tls-cert, --tls-key: %w", err)
		}
	}
	if c.insecure || (out.TLS != nil && out.Authenticator.Asks()) {
		return out, nil
	}
	for flag, l := range map[string]net.Listener{"--grpc-listen": grpc, "--http-listen": http} {
		if !access.IsLoopback(l.Addr().String()) {
			return out, flags.Errorf(
				"%s %s is not loopback: it needs TLS (--tls-cert, --tls-key) and authentication of callers "+
					"(--tls-client-ca, --token-file or --oidc-issuer), or --insecure, with which everyone on the "+
					"network may delete",
				flag, l.Addr(),
			)
		}
	}
	return out, nil
}

func (c *accessConfig) methods() string {
	var methods []string
	for _, m := range []struct{ setting, name string }{
		{c.ClientCA, "client certificates"},
		{c.TokenFile, "tokens"},
		{c.Issuer, "OpenID Connect"},
	} {
		if m.setting != "" {
			methods = append(methods, m.name)
		}
	}
	return cmp.Or(strings.Join(methods, ", "), "none")
}
