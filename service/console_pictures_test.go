package service_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

var pictures = flag.String("pictures", "", "where to put the pictures of the console for the documents; empty: nowhere")

// Runs with more events than are loaded at first; make pictures keeps the screens.
func TestConsoleOfALongRun(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	conn, err := pgx.Connect(t.Context(), s.db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := campaigndb.Fill(t.Context(), conn, 50_000, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	// The log of a run names each as a table that no task covers.
	s.db.Do(
		`DO
			$$ BEGIN FOR i IN 1..450 LOOP EXECUTE format('CREATE TABLE nmstrackinglogfar%s (LIKE nmstrackinglogrcp INCLUDING
				ALL)', i); END LOOP; END $$`,
	)
	p := browse(t, s.url)
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(1200, 800)); err != nil {
		t.Fatal(err)
	}
	picture := func(name string) {
		t.Helper()
		if *pictures == "" {
			return
		}
		p.evaluate("document.querySelector('nav .database code').textContent = 'campaign'") // not a test's
		png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644) // a picture is not secret
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p.sees("Overview")
	p.open("#/retention", "Retention")
	picture("retention")
	p.open("#/preview", "Preview")
	p.press("Start the preview")
	p.sees("What a run would delete", "Run exactly this", "Rejected rows of imports")
	picture("preview")
	p.press("Run exactly this")
	p.sees("What is deleted cannot be restored.")
	p.press("Run exactly this")
	p.sees("from this saved plan", "succeeded ended", "Space")
	if err := tell(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	}); err != nil {
		t.Fatal(err)
	}
	picture("run-dark")
	id := p.evaluate("location.hash.replace('#/runs/', '')")
	last := s.db.Int("SELECT max(sequence) FROM cleanupd.event WHERE run_id = '" + id + "'")
	if last < 500 {
		t.Errorf("the run has %d events only", last)
	}
	p.evaluate("location.reload()")
	p.sees("succeeded ended", "Show earlier lines")
	p.press("Show earlier lines")
	p.hasSeen(last)
	p.open("#/", "Overview")
	p.sees("30,293")
}
