package worker

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/service/runs")

// traceRun runs an attempt in a span whose parent is the call that requested the run.
func (c *claim) traceRun(ctx context.Context, run func(context.Context) error) error {
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier{store.TraceHeader: c.TraceParent})
	ctx, span := tracer.Start(ctx, "run",
		trace.WithAttributes(attribute.String("cleanupd.run_id", c.RunID.String()),
			attribute.Int64("cleanupd.epoch", c.Number), attribute.Bool("cleanupd.dry_run", c.DryRun)))
	defer span.End()
	err := run(ctx)
	if err != nil {
		span.SetStatus(codes.Error, sqlstate.Text(err))
	}
	return err
}

func untraced(ctx context.Context) context.Context { return trace.ContextWithSpan(ctx, noop.Span{}) }
