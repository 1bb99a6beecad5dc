package serve

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// errorHidingProvider records in spans that a statement failed, but not its error, which may quote user data.
type errorHidingProvider struct{ trace.TracerProvider }

func (p errorHidingProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return errorHidingTracer{p.TracerProvider.Tracer(name, options...)}
}

type errorHidingTracer struct{ trace.Tracer }

func (t errorHidingTracer) Start(
	ctx context.Context, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	ctx, span := t.Tracer.Start(ctx, name, options...)
	span = errorHidingSpan{span}
	return trace.ContextWithSpan(ctx, span), span
}

type errorHidingSpan struct{ trace.Span }

func (errorHidingSpan) RecordError(error, ...trace.EventOption) {}

func (s errorHidingSpan) SetStatus(code codes.Code, _ string) { s.Span.SetStatus(code, "") }
