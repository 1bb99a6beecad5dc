package serve

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/cleanupd/cleanupd/internal/flags"
)

// tracingVariables turn on tracing if one of them is set.
var tracingVariables = []string{
	"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
}

// startTracing sends traces as OpenTelemetry's environment variables say. It returns tracers for connections to the
// databases and to a Forms database, which are nil if none of the variables is set. stop sends pending traces.
func startTracing(ctx context.Context) (tracer, forms pgx.QueryTracer, stop func(), err error) {
	if !slices.ContainsFunc(tracingVariables, func(name string) bool { return os.Getenv(name) != "" }) {
		return nil, nil, func() {}, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, nil, nil, flags.Errorf("%s: %w", tracingVariables[0], err)
	}
	attributes, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "cleanupd")), resource.WithFromEnv())
	if err != nil {
		return nil, nil, nil, flags.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(attributes))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	forms = otelpgx.NewTracer(otelpgx.WithTracerProvider(errorHidingProvider{provider}))
	return otelpgx.NewTracer(), forms, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "the last traces could not be sent: %v\n", err)
		}
	}, nil
}

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
