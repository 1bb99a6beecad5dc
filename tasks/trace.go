package tasks

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"

	"github.com/cleanupd/cleanupd/internal/rescue"
)

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/tasks")

// traced executes one task in a span of its own. A panic is an error of the task.
func (e *Env) traced(ctx context.Context, t Task) (State, error) {
	ctx, span := tracer.Start(ctx, "task "+t.Name)
	defer span.End()
	var state State
	err := rescue.Call(func() (err error) { state, err = e.run(ctx, t); return err })
	if err != nil {
		span.SetStatus(codes.Error, Explain(err))
	}
	return state, err
}
