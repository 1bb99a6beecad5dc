package transport

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/cleanupd/cleanupd/service/access"
)

func identifyGRPC(guard *access.Guard) func(context.Context) (access.Caller, error) {
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

func identifyHTTP(guard *access.Guard, r *http.Request) (access.Caller, error) {
	var shown []*x509.Certificate
	if r.TLS != nil {
		shown = r.TLS.PeerCertificates
	}
	return guard.Identify(r.Context(), hostOf(r.RemoteAddr), shown, r.Header.Values("Authorization"))
}

// callerHeader is the metadata in which the gateway passes the caller on. Only the server behind the gateway trusts
// it, and only the gateway can reach that server.
const callerHeader = "cleanupd-caller-bin"

func callerMetadata(ctx context.Context, _ *http.Request) metadata.MD {
	c, err := json.Marshal(access.FromContext(ctx))
	if err != nil { // cannot happen: a Caller has only strings and a number
		return nil
	}
	return metadata.Pairs(callerHeader, string(c))
}

func identifyFromGateway(ctx context.Context) (c access.Caller, err error) {
	values := metadata.ValueFromIncomingContext(ctx, callerHeader)
	if len(values) != 1 {
		return c, access.ErrNone
	}
	return c, json.Unmarshal([]byte(values[0]), &c)
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
