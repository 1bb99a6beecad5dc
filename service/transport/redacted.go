package transport

import (
	"context"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// redacted passes the statistics of calls on, without the messages of errors that the log does not have either: spans
// would hold them.
type redacted struct{ stats.Handler }

type methodKey struct{}

// TagRPC implements stats.Handler.
func (d redacted) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return d.Handler.TagRPC(context.WithValue(ctx, methodKey{}, info.FullMethodName), info)
}

// HandleRPC implements stats.Handler.
func (d redacted) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok && end.Error != nil {
		method, _ := ctx.Value(methodKey{}).(string)
		quiet := *end
		quiet.Error = status.Error(status.Code(end.Error), said(method, end.Error))
		s = &quiet
	}
	d.Handler.HandleRPC(ctx, s)
}
