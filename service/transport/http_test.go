package transport

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A response that has begun when its handler panics is cut off, so that no client takes it for complete.
func TestResponseThatPanics(t *testing.T) {
	t.Parallel()
	for begun, want := range map[string]int{"": http.StatusInternalServerError, `{"half":`: http.StatusOK} {
		web := httptest.NewServer(
			(&gate{log: slog.New(slog.DiscardHandler), timeouts: Timeouts{}.withDefaults()}).guarded(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if begun != "" {
						_, _ = io.WriteString(w, begun)
						_ = http.NewResponseController(w).Flush()
					}
					panic("PLANTED")
				}),
			),
		)
		answer, err := http.Get(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		web.Close()
		if answer.StatusCode != want || (err != nil) != (begun != "") || strings.Contains(string(body), "PLANTED") {
			t.Errorf("%q: %s, %v: %s", begun, answer.Status, err, body)
		}
	}
}
