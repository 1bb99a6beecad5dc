package serve

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/cleanupd/cleanupd/internal/flags"
)

// tracing are the environment variables of OpenTelemetry of which any enables traces.
var tracingVariables = []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}

// startTracing sends traces where OpenTelemetry's environment variables say, and returns the tracers of connections to
// databases, and to a Forms database; nil without any of them. stop sends what is left.
func startTracing(ctx context.Context) (tracer, forms pgx.QueryTracer, stop func(), err error) {
	asked := false
	for _, name := range tracingVariables {
		asked = asked || os.Getenv(name) != ""
	}
	if !asked {
		return nil, nil, func() {}, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, nil, nil, flags.Errorf("%s: %w", tracingVariables[0], err)
	}
	what, err := resource.New(
		ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "cleanupd")),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, nil, nil, flags.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(what))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return otelpgx.NewTracer(), otelpgx.NewTracer(otelpgx.WithTracerProvider(errorHidingProvider{provider})), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "the last traces could not be sent: %v\n", err)
		}
	}, nil
}
