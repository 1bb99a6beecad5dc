package purge

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/tasks/purge")

// traceEvery is how often a batch of a worker is traced: a large table has thousands.
const traceEvery = time.Second

// traced runs a batch in a span of its own if it is time for one, and else without a span.
func (w *worker) traced(ctx context.Context, batch func(context.Context) error) error {
	if time.Since(w.spanned) < traceEvery {
		return batch(trace.ContextWithSpan(ctx, noop.Span{}))
	}
	w.spanned = time.Now()
	ctx, span := tracer.Start(
		ctx,
		"batch",
		trace.WithAttributes(attribute.String("cleanupd.table", w.Name), attribute.Int64("cleanupd.from", w.from)),
	)
	defer span.End()
	err := batch(ctx)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}
