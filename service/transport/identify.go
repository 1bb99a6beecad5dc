package transport

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/service/access"
)

// overGRPC identifies callers of the gRPC listener.
func overGRPC(guard *access.Guard) func(context.Context) (access.Caller, error) {
	return func(ctx context.Context) (access.Caller, error) {
		var (
			address string
			shown   []*x509.Certificate
		)
		if p, ok := peer.FromContext(ctx); ok {
			address = hostOf(p.Addr.String())
			if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
				shown = info.State.PeerCertificates
			}
		}
		return guard.Identify(ctx, address, shown, metadata.ValueFromIncomingContext(ctx, "authorization"))
	}
}

// overHTTP identifies who makes a request.
func overHTTP(guard *access.Guard, r *http.Request) (access.Caller, error) {
	var shown []*x509.Certificate
	if r.TLS != nil {
		shown = r.TLS.PeerCertificates
	}
	return guard.Identify(r.Context(), hostOf(r.RemoteAddr), shown, r.Header.Values("Authorization"))
}

// callerHeader is how the gateway passes the caller on to the server behind it. Only that server, which nobody but the
// gateway can reach, trusts it.
const callerHeader = "cleanupd-caller-bin"

// forwarded is the metadata by which the gateway passes the caller on.
func forwarded(ctx context.Context, _ *http.Request) metadata.MD {
	c, err := json.Marshal(access.FromContext(ctx))
	if err != nil { // never: a Caller has only strings and a number
		return nil
	}
	return metadata.Pairs(callerHeader, string(c))
}

// byGateway trusts the gateway about the caller.
func byGateway(ctx context.Context) (c access.Caller, err error) {
	values := metadata.ValueFromIncomingContext(ctx, callerHeader)
	if len(values) != 1 {
		return c, access.ErrNone
	}
	return c, json.Unmarshal([]byte(values[0]), &c)
}

// only lets requests through whose caller has at least a role.
func only(
	guard *access.Guard,
	limits *limits,
	refusals *refusals,
	log *slog.Logger,
	role access.Role,
	next http.Handler,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := overHTTP(guard, r)
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			err = denied(err)
		case c.Role < role:
			err = status.Errorf(codes.PermissionDenied, "%s needs the role %s", r.URL.Path, role)
		default:
			err = limits.introduce(r.Context(), c.String())
		}
		if err == nil {
			next.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), c)))
			return
		}
		code := status.Code(err)
		refusals.report(refusal{c.String(), "", code}, func() {
			log.Warn(
				"refused",
				"path",
				r.URL.Path,
				"subject",
				c.Subject,
				"address",
				c.Address,
				"error",
				status.Convert(err).Message(),
			)
		}, func(who string, times int) {
			log.Warn("refused", "who", who, "code", nameOf(code), "times", times)
		})
		writeError(w, r, err)
	})
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
