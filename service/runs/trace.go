package runs

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/service/runs")

// traceHeader is the header of W3C's trace context that is kept of a trace.
const traceHeader = "traceparent"

// traceParent is the span of a context, for another process to continue.
func traceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	return carrier[traceHeader]
}

// traced makes an attempt at a run in a span of its own, below that of the call that requested it.
func (c *claim) traced(ctx context.Context, attempt func(context.Context) error) error {
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier{traceHeader: c.traceParent})
	ctx, span := tracer.Start(
		ctx,
		"run",
		trace.WithAttributes(
			attribute.String("cleanupd.run_id", c.id),
			attribute.Int64("cleanupd.epoch", c.epoch),
			attribute.Bool("cleanupd.dry_run", c.dryRun),
		),
	)
	defer span.End()
	err := attempt(ctx)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

// untraced returns a context whose statements are not traced.
func untraced(ctx context.Context) context.Context { return trace.ContextWithSpan(ctx, noop.Span{}) }
