package transport

import (
	"encoding/json"
	"log/slog"
	"mime"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/service/access"
)

// httpGate protects the HTTP routes that do not lead to the gateway.
type httpGate struct {
	guard      *access.Guard
	limits     *limits
	rejections *rejections
	log        *slog.Logger
}

func (g httpGate) requireRole(role access.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := identifyHTTP(g.guard, r)
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			err = credentialsStatus(err)
		case c.Role < role:
			err = status.Errorf(codes.PermissionDenied, "%s needs the role %s", r.URL.Path, role)
		default:
			err = g.limits.authenticated(r.Context(), c.String())
		}
		if err == nil {
			next.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), c)))
			return
		}
		code := status.Code(err)
		g.rejections.report(rejection{c.String(), "", code}, func() {
			g.log.Warn("rejected", "path", r.URL.Path, "subject", c.Subject, "address", c.Address,
				"error", status.Convert(err).Message())
		}, func(who string, times int) {
			g.log.Warn("rejected", "who", who, "code", codeName(code), "times", times)
		})
		writeError(w, r, err)
	})
}

// methods answers which credentials are accepted, and where a browser goes to sign in. The caller needs no
// credentials.
func (g httpGate) methods(w http.ResponseWriter, r *http.Request) {
	authorization, err := g.guard.Authorization(r.Context())
	if err != nil {
		g.log.Warn("sign-in does not work", "error", err)
	}
	answer := struct {
		Methods []string              `json:"methods"` // certificate, token, jwt; if empty, everyone is an admin
		OIDC    *access.Authorization `json:"oidc,omitempty"`
		Problem string                `json:"problem,omitempty"`
	}{append([]string{}, g.guard.Methods()...), authorization, ""}
	if err != nil {
		answer.Problem = "the OpenID Connect issuer does not answer"
	}
	writeJSON(w, answer)
}

// exchange lets the issuer exchange the code of a browser's redirect, or a refresh token, for a JWT.
func (g httpGate) exchange(w http.ResponseWriter, r *http.Request) {
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
	signed, err := g.guard.Exchange(r.Context(), grant)
	if err != nil {
		g.reject(w, r, credentialsStatus(err))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, signed)
}

// reject answers with the error. Repeated errors are logged together.
func (g httpGate) reject(w http.ResponseWriter, r *http.Request, err error) {
	address, code := networkOf(r.RemoteAddr), status.Code(err)
	g.rejections.report(rejection{address, "auth:exchange", code},
		func() { g.log.Warn("a sign-in failed", "address", address, "error", err) },
		func(who string, times int) {
			g.log.Warn("sign-ins failed", "who", who, "code", codeName(code), "times", times)
		})
	writeError(w, r, err)
}
