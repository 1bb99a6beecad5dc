package transport

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"

	"github.com/klauspost/compress/gzhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/web"
)

// policy is the Content-Security-Policy of the console: what is not from this server is not loaded, nor reached.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; object-src 'none'; frame-ancestors 'none'"

// console serves the page at / and what it is made of.
func console() http.Handler {
	files, err := fs.Sub(web.Dist, "dist")
	if err != nil {
		panic(err) // never: the directory is in the program
	}
	serve := gzhttp.GzipHandler(http.FileServerFS(files))
	return onlyGet(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache")
		if r.URL.Path != "/" { // its name changes with what is in it
			if info, err := fs.Stat(files, r.URL.Path[1:]); err != nil || info.IsDir() {
				routingError(r.Context(), nil, nil, w, r, http.StatusNotFound)
				return
			}
			header.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		serve.ServeHTTP(w, r)
	})
}

// signIn says without credentials how to get some, and takes those of a browser to the issuer.
type signIn struct {
	guard    *access.Guard
	limits   *limits
	refusals *refusals
	log      *slog.Logger
}

// ways answers with the credentials that are accepted, and where a browser is sent to sign in.
func (s signIn) ways(w http.ResponseWriter, r *http.Request) {
	authorization, err := s.guard.Authorization(r.Context())
	if err != nil {
		s.log.Warn("nobody can sign in", "error", err)
	}
	answer := struct {
		Methods []string              `json:"methods"` // certificate, token, jwt; none: everyone is an admin
		OIDC    *access.Authorization `json:"oidc,omitempty"`
		Problem string                `json:"problem,omitempty"`
	}{append([]string{}, s.guard.Methods()...), authorization, ""}
	if err != nil {
		answer.Problem = "the OpenID Connect issuer does not answer"
	}
	writeJSON(w, answer)
}

// exchange answers with the JWT that a browser may send, for the code of its redirect, or for a refresh token.
func (s signIn) exchange(w http.ResponseWriter, r *http.Request) {
	if given, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); given != "application/json" {
		writeStatus(
			w,
			r,
			http.StatusUnsupportedMediaType,
			status.New(
				codes.InvalidArgument,
				"the route takes JSON and must be told so: Content-Type: application/json",
			),
		)
		return
	}
	_, leave, err := s.limits.enter(networkOf(r.RemoteAddr), access.Nobody, aSignIn)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer leave()
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
	signed, err := s.guard.Exchange(r.Context(), grant)
	if err != nil {
		s.refuse(w, r, denied(err))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, signed)
}

// refuse answers a sign-in with an error. Repeated ones are reported together.
func (s signIn) refuse(w http.ResponseWriter, r *http.Request, err error) {
	address, code := networkOf(r.RemoteAddr), status.Code(err)
	s.refusals.report(refusal{address, "auth:exchange", code},
		func() { s.log.Warn("a sign-in failed", "address", address, "error", err) },
		func(who string, times int) {
			s.log.Warn("sign-ins failed", "who", who, "code", nameOf(code), "times", times)
		})
	writeError(w, r, err)
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
