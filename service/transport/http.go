package transport

import (
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd"
	"github.com/cleanupd/cleanupd/service/access"
)

// handler handles all HTTP requests: those for the gateway, and those of probes and scrapers.
func (s *Server) handler(
	limits *limits,
	refusals *refusals,
	registry *prometheus.Registry,
	c Config,
) (http.Handler, error) {
	gateway, err := s.gateway()
	if err != nil {
		return nil, err
	}
	known := http.NewServeMux() // for authenticated callers only
	known.Handle("/v1/", gateway)
	known.Handle(
		"/openapi.json",
		gzhttp.GzipHandler(
			onlyGet(
				func(w http.ResponseWriter, r *http.Request) { writeText(w, "application/json", cleanupd.OpenAPI) },
			),
		),
	)
	known.Handle("/metrics", onlyGet(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP))
	known.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		routingError(r.Context(), nil, nil, w, r, http.StatusNotFound)
	})
	mux := http.NewServeMux()
	if c.Console {
		door := signIn{c.Guard, limits, refusals, c.Log}
		page := console()
		mux.Handle("/{$}", page)
		mux.Handle("/assets/", page)
		mux.Handle("/v1/auth", onlyGet(door.ways))
		mux.HandleFunc("POST /v1/auth:exchange", door.exchange)
	}
	mux.Handle(
		"/",
		otelhttp.NewHandler(
			recovery{c.Log}.handler(only(c.Guard, limits, refusals, c.Log, access.Viewer, known)),
			"HTTP",
			otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != "/metrics" }),
		),
	)
	mux.Handle("/healthz", onlyGet(func(w http.ResponseWriter, r *http.Request) { writeText(w, "text/plain", "ok\n") }))
	mux.Handle("/readyz", onlyGet(func(w http.ResponseWriter, r *http.Request) {
		if err := s.health.ready(r.Context()); err != nil {
			writeError(w, r, status.Error(codes.Unavailable, err.Error()))
			return
		}
		writeText(w, "text/plain", "ok\n")
	}))
	return http.MaxBytesHandler(asTyped(onlyOwn(mux, c.HTTPLoopback)), maxRequest), nil
}

func writeText(w http.ResponseWriter, contentType, text string) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write([]byte(text))
}

func onlyGet(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			routingError(r.Context(), nil, nil, w, r, http.StatusMethodNotAllowed)
			return
		}
		next(w, r)
	})
}

// asTyped forbids browsers to take a response for anything but what it says it is.
func asTyped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// ofConsole reports whether a request is for the console's page, or what that is made of: both are the same for
// everyone, and other sites may link to it, or redirect back.
func ofConsole(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/assets/"))
}

// onlyOwn refuses what a foreign web page sends through a browser: cross-origin requests of any method and, if the
// server listens on loopback, requests to another host, by which a page could pass as same-origin (DNS rebinding).
func onlyOwn(next http.Handler, loopback bool) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		judged := r.WithContext(r.Context())
		judged.Method = http.MethodPost // for GET, too, which the protection would let pass
		switch {
		case loopback && !access.IsLoopback(r.Host):
			writeError(
				w,
				r,
				status.Errorf(
					codes.PermissionDenied,
					"this server listens on loopback and does not serve the host %q",
					r.Host,
				),
			)
		case !ofConsole(r) && protection.Check(judged) != nil:
			writeError(w, r, status.Error(codes.PermissionDenied, "cross-origin requests are refused"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}
