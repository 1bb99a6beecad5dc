package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/teststorage"
)

// The demo's run takes seconds.
const scrapeEvery = 250 * time.Millisecond

// demo starts a demo that has deleted nothing yet, and returns its REST address.
func demo(t *testing.T) (url string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "cleanupd")
	build := exec.Command("go", "build", "-o", program, "./cmd/cleanupd")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "demo", "--keep", "--rows", "200000", "--grpc-listen", "127.0.0.1:0",
		"--http-listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		if m := regexp.MustCompile(`curl -N -X POST (http://[^/]+)`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	if url == "" {
		t.Fatal("the demo did not begin")
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return url
}

// call makes the server count a call, which the dashboard shows.
func call(t *testing.T, method, url, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
}

// Into Prometheus' storage, until the context ends.
func record(ctx context.Context, url string, into *teststorage.TestStorage) error {
	ticker := time.NewTicker(scrapeEvery)
	defer ticker.Stop()
	for {
		if err := scrape(ctx, url, into); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func scrape(ctx context.Context, url string, into *teststorage.TestStorage) error {
	now := model.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return err
	}
	app := into.Appender(ctx)
	for _, family := range families {
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: now}, family)
		if err != nil {
			return fmt.Errorf("%s: %w", family.GetName(), err)
		}
		for _, s := range samples {
			b := labels.NewBuilder(labels.EmptyLabels()).Set("job", "cleanupd").Set("instance", "demo")
			for name, value := range s.Metric {
				b.Set(string(name), string(value))
			}
			if _, err := app.Append(0, b.Labels(), int64(s.Timestamp), float64(s.Value)); err != nil {
				return err
			}
		}
	}
	return app.Commit()
}
