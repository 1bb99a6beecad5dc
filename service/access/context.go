package access

import "context"

type contextKey struct{}

// NewContext returns a context of a call that carries its caller.
func NewContext(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// FromContext returns the caller of the call that a context is of, or a caller without a role.
func FromContext(ctx context.Context) Caller {
	c, _ := ctx.Value(contextKey{}).(Caller)
	return c
}
