package service

import (
	"context"
	"net"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// callerHeader is how the gateway tells the service behind it whom it serves. Only the in-memory server, which
// nobody but the gateway reaches, believes it.
const callerHeader = "cleanupd-caller"

// caller is who makes a call, for the run's record: the address it came from.
func caller(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if p.Addr.Network() == "bufconn" {
		if md, ok := metadata.FromIncomingContext(ctx); ok && len(md.Get(callerHeader)) == 1 {
			return md.Get(callerHeader)[0]
		}
	}
	return hostOf(p.Addr.String())
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
