package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// Each page, with something on it, is accessible and complete in each language, on a telephone's screen, too.
func TestConsoleSpeaks(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	script := axe(t)
	s := withConsole(t, access.Config{})
	s.db.Do(
		`INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
			SELECT i, 0, 0, now() - '1 year'::interval FROM generate_series(1, 20) i;
		INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, now() - '1 day'::interval
			FROM generate_series(1, 5) i`,
	)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
		Hold: &cleanupv1.Hold{
			What:       &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: "xtkreject"}},
			Reason:     "an audit",
			ExpireTime: timestamppb.New(time.Now().Add(time.Hour)),
		},
	}))
	do(s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{Schedule: &cleanupv1.Schedule{
		Cron: "0 4 * * *", Enabled: true, Windows: []*cleanupv1.Window{
			{Days: []string{"MON", "FRI"}, Start: "22:00", End: "06:00", Pace: cleanupv1.Pace_PACE_FAST},
			{Start: "01:00", End: "05:30"},
		},
	}}))
	do(s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{Guards: &cleanupv1.Guards{MinRows: new(int64(10))}}))
	_, foreseen, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"visitors", "sessions"}})
	do(foreseen, err)
	_, tripped, err := s.run(t, &cleanupv1.RunCleanupRequest{ContinueOnError: true, Undo: durationpb.New(time.Hour)})
	if err == nil {
		t.Fatal("no guard has tripped")
	}
	restore, err := s.RestoreTrash(t.Context(), &cleanupv1.RestoreTrashRequest{
		RunId: tripped.GetId(), Tables: []string{"xtksessioninfo"}, Keys: []string{"1"},
	})
	restored, err := drain(t, restore, err)
	do(restored, err)
	lock := s.db.Hold("LOCK TABLE XtkSessionInfo")
	stream, err := s.RunCleanup(t.Context(), &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}, Detach: true})
	do(stream, err)
	paused, err := stream.Recv()
	do(paused, err)
	do(s.PauseRun(t.Context(), &cleanupv1.PauseRunRequest{RunId: paused.GetEvent().GetRunId()}))
	do(nil, lock.Rollback(t.Context()))
	hashes := []string{
		"#/runs/" + paused.GetEvent().GetRunId(),
		"#/runs/" + foreseen.GetId(),
		"#/runs/" + tripped.GetId(),
		"#/runs/" + restored[0].GetRunId(),
		"#/explain/nmsvisitor/1",
		"#/explain/nmsvisitor/4711",
		"#/policies//public.nmsvisitor",
	}
	for _, page := range pages {
		hashes = append(hashes, page.hash)
	}

	p := browse(t, s.url)
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(360, 800)); err != nil {
		t.Fatal(err)
	}
	p.sees("Overview")
	for _, c := range []struct{ language, overview string }{
		{"en", "Overview"},
		{"de", "Übersicht"},
		{"fr", "Vue d’ensemble"},
		{"ja", "概要"},
	} {
		p.evaluate("location.hash = '#/'")
		p.evaluate(`(select => { select.value = '` + c.language + `'; select.dispatchEvent(new Event('change')) ` +
			`})(document.querySelector('nav select'))`)
		p.open("#/", c.overview)
		if got := p.evaluate("document.documentElement.lang"); got != c.language {
			t.Errorf("the page is in %s and says it is in %s", c.language, got)
		}
		for _, hash := range hashes {
			p.evaluate("location.hash = " + quote(hash))
			entry := "#/" + strings.Split(hash, "/")[1]
			p.until(
				"it shows "+hash,
				"document.querySelector('h1') && !document.querySelector('[aria-busy]') && "+
					"document.querySelector('nav a[aria-current]').getAttribute('href') === "+quote(entry),
			)
			if left := p.evaluate(
				`document.body.innerText.match(/\{\w+\}|undefined|NaN|Invalid Date/)`,
			); left != "null" {
				t.Errorf("%s in %s: %s", hash, c.language, left)
			}
			if wide := p.evaluate("document.documentElement.scrollWidth"); wide != "360" {
				t.Errorf("%s in %s is %s pixels wide on a screen of 360", hash, c.language, wide)
			}
			p.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
			if out := p.evaluate(`[...document.querySelectorAll('td')].filter(
				e => e.getBoundingClientRect().right > 360).map(e => e.innerText).join()`); out != "" {
				t.Errorf("%s in %s has cells beyond a screen of 360 pixels: %s", hash, c.language, out)
			}
			if c.language == "en" { // colours are the same in all of them
				p.accessible(script, hash)
			} else {
				p.check(script, hash+" in "+c.language)
			}
		}
	}
}
