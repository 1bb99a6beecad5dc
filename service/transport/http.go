package transport

import (
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/web"
)

func (s *Server) handler(g *gate, registry *prometheus.Registry, c Config) (http.Handler, error) {
	gateway, err := s.gateway()
	if err != nil {
		return nil, err
	}
	known := http.NewServeMux() // for authenticated callers only
	known.Handle("/v1/", gateway)
	known.Handle("/openapi.json", gzhttp.GzipHandler(getOnly(func(w http.ResponseWriter, r *http.Request) {
		writeText(w, "application/json", cleanupd.OpenAPI)
	})))
	known.Handle("/metrics", getOnly(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP))
	known.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		routingError(r.Context(), nil, nil, w, r, http.StatusNotFound)
	})
	mux := http.NewServeMux()
	if c.Console {
		page := console()
		mux.Handle("/{$}", page)
		mux.Handle("/assets/", page)
		mux.Handle("/v1/auth", getOnly(g.methods))
		mux.HandleFunc("POST /v1/auth:exchange", g.exchange)
	}
	mux.Handle("/", otelhttp.NewHandler(g.signedIn(known), "HTTP",
		otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != "/metrics" })))
	mux.Handle("/healthz", getOnly(func(w http.ResponseWriter, r *http.Request) { writeText(w, "text/plain", "ok\n") }))
	mux.Handle("/readyz", getOnly(func(w http.ResponseWriter, r *http.Request) {
		if err := s.health.notReady(r.Context()); err != nil {
			writeError(w, r, status.Error(codes.Unavailable, err.Error()))
			return
		}
		writeText(w, "text/plain", "ok\n")
	}))
	return g.guarded(http.MaxBytesHandler(withHeaders(sameOrigin(mux, c.HTTPLoopback)), maxRequest)), nil
}

// guarded answers a request whose handler panics, and limits how long each write may wait for the client.
// http.Server.WriteTimeout would limit the whole stream.
func (g *gate) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &response{ResponseWriter: w, control: http.NewResponseController(w), timeout: g.timeouts.Stall}
		err := g.rescued(r.Method+" "+r.URL.Path, func() error { next.ServeHTTP(out, r); return nil })
		switch {
		case err == nil:
		case out.started: // clients must not take half a response for a whole one
			panic(http.ErrAbortHandler)
		default:
			writeError(out, r, toStatus(r.Context(), err))
		}
		out.setDeadline() // the end of the response is written later
	})
}

type response struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	started bool
}

// Unwrap and FlushError are for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) FlushError() error {
	w.setDeadline()
	defer w.clearDeadline()
	return w.control.Flush()
}

func (w *response) WriteHeader(code int) {
	w.started = true
	w.ResponseWriter.WriteHeader(code)
}

func (w *response) Write(p []byte) (int, error) {
	w.started = true
	w.setDeadline()
	defer w.clearDeadline()
	return w.ResponseWriter.Write(p)
}

func (w *response) setDeadline() { _ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) }

// clearDeadline is needed because over HTTP/2 the deadline would also end a stream that writes nothing for a while.
func (w *response) clearDeadline() { _ = w.control.SetWriteDeadline(time.Time{}) }

// withHeaders gives each response an id, and keeps browsers from guessing its type.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestHeader, rand.Text())
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// sameOrigin rejects requests that a foreign web page sends through a browser. These are cross-origin requests of
// any method. If the server listens on loopback, they are also requests to another host, because a page could pass
// as same-origin with such a name (DNS rebinding).
func sameOrigin(next http.Handler, loopback bool) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		checked := r.WithContext(r.Context())
		checked.Method = http.MethodPost // for GET too, which the protection would let pass
		switch {
		case loopback && !access.IsLoopback(r.Host):
			writeError(w, r,
				status.Errorf(codes.PermissionDenied, "this server listens on loopback and does not serve the host %q",
					r.Host))
		case !isConsole(r) && protection.Check(checked) != nil:
			writeError(w, r, status.Error(codes.PermissionDenied, "cross-origin requests are rejected"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isConsole reports whether a request is for the console's page or assets. They are the same for everybody, and
// other sites may link to them or redirect back to them.
func isConsole(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/assets/"))
}

func getOnly(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			routingError(r.Context(), nil, nil, w, r, http.StatusMethodNotAllowed)
			return
		}
		next(w, r)
	})
}

func writeText(w http.ResponseWriter, contentType, text string) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write([]byte(text))
}

// policy is the Content-Security-Policy of the console: the page loads from, and connects to, only this server.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; object-src 'none'; frame-ancestors 'none'"

func console() http.Handler {
	files, err := fs.Sub(web.Dist, "dist")
	if err != nil {
		panic(err) // cannot happen: the directory is part of the program
	}
	serve := gzhttp.GzipHandler(http.FileServerFS(files))
	return getOnly(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache")
		if r.URL.Path != "/" { // the name of an asset changes with its content
			if info, err := fs.Stat(files, r.URL.Path[1:]); err != nil || info.IsDir() {
				routingError(r.Context(), nil, nil, w, r, http.StatusNotFound)
				return
			}
			header.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		serve.ServeHTTP(w, r)
	})
}

// methods responds with the accepted kinds of credentials, and with where a browser signs in. The caller needs no
// credentials.
func (g *gate) methods(w http.ResponseWriter, r *http.Request) {
	authorization, err := g.authenticator.Authorization(r.Context())
	if err != nil {
		g.log.Warn("could not offer sign-in with the issuer", "error", err)
	}
	answer := struct {
		Methods []string              `json:"methods"` // certificate, token, jwt; if empty, everyone is an admin
		OIDC    *access.Authorization `json:"oidc,omitempty"`
		Problem string                `json:"problem,omitempty"`
	}{append([]string{}, g.authenticator.Methods()...), authorization, ""}
	if err != nil {
		answer.Problem = "the OpenID Connect issuer does not answer"
	}
	writeJSON(w, answer)
}

// exchange has the issuer exchange the code of a browser's redirect, or a refresh token, for a JWT.
func (g *gate) exchange(w http.ResponseWriter, r *http.Request) {
	if given, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); given != "application/json" {
		writeStatus(w, r, http.StatusUnsupportedMediaType,
			status.New(codes.InvalidArgument, "the route requires Content-Type: application/json"))
		return
	}
	_, release, err := g.limits.acquire(networkOf(r.RemoteAddr), access.Nobody, signInSlot)
	if err != nil {
		g.reject(w, r, err)
		return
	}
	defer release()
	var grant access.Grant
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&grant); err != nil {
		writeError(w, r, status.Errorf(codes.InvalidArgument, "the body is not a grant: %v", err))
		return
	}
	if (grant.Code == "") == (grant.RefreshToken == "") {
		writeError(w, r, status.Error(codes.InvalidArgument, "either code or refreshToken must be given"))
		return
	}
	signed, err := g.authenticator.Exchange(r.Context(), grant)
	if err != nil {
		g.reject(w, r, credentialsStatus(err))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, signed)
}

// reject answers with the error. Repeated errors are logged together.
func (g *gate) reject(w http.ResponseWriter, r *http.Request, err error) {
	address, code := networkOf(r.RemoteAddr), status.Code(err)
	g.rejections.report(rejection{address, "auth:exchange", code},
		func() { g.log.Warn("sign-in failed", "address", address, "error", err) },
		func(who string, times int) {
			g.log.Warn("further sign-ins failed", "who", who, "code", codeName(code), "times", times)
		})
	writeError(w, r, err)
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
