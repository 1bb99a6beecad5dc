package transport

import (
	"context"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// redactingHandler gives spans the same error texts as the log (logText).
type redactingHandler struct{ stats.Handler }

type methodKey struct{}

func (d redactingHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return d.Handler.TagRPC(context.WithValue(ctx, methodKey{}, info.FullMethodName), info)
}

func (d redactingHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok && end.Error != nil {
		method, _ := ctx.Value(methodKey{}).(string)
		quiet := *end
		quiet.Error = status.Error(status.Code(end.Error), logText(method, end.Error))
		s = &quiet
	}
	d.Handler.HandleRPC(ctx, s)
}
