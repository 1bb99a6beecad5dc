package transport

import (
	"context"
	"mime"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// ndjson is the type of a stream of JSON objects, one per line.
const ndjson = "application/x-ndjson"

type ndjsonMarshaler struct{ strictJSON }

func (ndjsonMarshaler) StreamContentType(any) string { return ndjson }

// negotiate sends a stream as lines unless the caller accepts application/json. It compresses long responses, and
// answers HEAD with the headers of GET.
func negotiate(next http.Handler) http.Handler {
	compressed := gzhttp.GzipHandler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := r.Method == http.MethodHead
		if _, ok := operationsOf(r.URL)[http.MethodGet]; head && ok {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			r = r.Clone(ctx)
			r.Method = http.MethodGet
			w = &headOnly{w, cancel}
		}
		if operationsOf(r.URL)[r.Method].stream {
			w.Header().Set("X-Accel-Buffering", "no") // a proxy must not collect events
			r = r.Clone(r.Context())
			if !accepts(r, "application/json") {
				r.Header.Set("Accept", ndjson)
			}
			next.ServeHTTP(w, r)
			return
		}
		compressed.ServeHTTP(w, r)
	})
}

func accepts(r *http.Request, want string) bool {
	for _, header := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(header, ",") {
			if given, _, err := mime.ParseMediaType(one); err == nil && given == want {
				return true
			}
		}
	}
	return false
}

// headOnly ends a stream once its headers are written. The HTTP server itself drops the body of an answer to HEAD.
type headOnly struct {
	http.ResponseWriter
	end context.CancelFunc
}

func (w *headOnly) Write(p []byte) (int, error) {
	defer w.end()
	return w.ResponseWriter.Write(p)
}

func (w *headOnly) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
