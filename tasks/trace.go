package tasks

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
)

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/tasks")

// traced executes one task in a span of its own.
func (e *Env) traced(ctx context.Context, t Task) (State, error) {
	ctx, span := tracer.Start(ctx, "task "+t.Name)
	defer span.End()
	state, err := e.run(ctx, t)
	if err != nil {
		span.SetStatus(codes.Error, Explain(err))
	}
	return state, err
}
