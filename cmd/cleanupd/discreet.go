package main

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// discreetProvider makes tracers whose spans say that something failed, but not with which error: those of statements
// about user data may quote it.
type discreetProvider struct{ trace.TracerProvider }

// Tracer implements trace.TracerProvider.
func (p discreetProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return discreetTracer{p.TracerProvider.Tracer(name, options...)}
}

type discreetTracer struct{ trace.Tracer }

// Start implements trace.Tracer.
func (t discreetTracer) Start(
	ctx context.Context,
	name string,
	options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	ctx, span := t.Tracer.Start(ctx, name, options...)
	span = discreetSpan{span}
	return trace.ContextWithSpan(ctx, span), span
}

type discreetSpan struct{ trace.Span }

// RecordError implements trace.Span.
func (discreetSpan) RecordError(error, ...trace.EventOption) {}

// SetStatus implements trace.Span.
func (s discreetSpan) SetStatus(code codes.Code, _ string) { s.Span.SetStatus(code, "") }
