package transport

import (
	"encoding/json"
	"io/fs"
	"net/http"

	"github.com/klauspost/compress/gzhttp"

	"github.com/cleanupd/cleanupd/web"
)

// policy is the Content-Security-Policy of the console: the page loads, and connects to, this server only.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; object-src 'none'; frame-ancestors 'none'"

// console serves the page at / and its assets.
func console() http.Handler {
	files, err := fs.Sub(web.Dist, "dist")
	if err != nil {
		panic(err) // never: the directory is in the program
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

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
