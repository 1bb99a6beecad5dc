package execute

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"

	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/tasks/execute")

// traced executes one task in a span of its own. A panic is an error of the task.
func (t *task) traced(ctx context.Context, what plan.Task) (State, error) {
	ctx, span := tracer.Start(ctx, "task "+what.Name)
	defer span.End()
	var state State
	err := rescue.Call(func() (err error) { state, err = t.run(ctx, what); return err })
	if err != nil {
		span.SetStatus(codes.Error, sqlstate.Explain(err))
	}
	return state, err
}
