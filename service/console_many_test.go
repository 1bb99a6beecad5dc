package service_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// Elements of a page.
const nodes = "document.querySelectorAll('*').length"

// In bytes.
func (p *tab) heap() float64 {
	p.t.Helper()
	if err := tell(p.ctx, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
		p.t.Fatal(err)
	}
	usage, err := chromedp.Call(p.ctx, runtime.GetHeapUsage, cdp.Empty{})
	if err != nil {
		p.t.Fatal(err)
	}
	return usage.UsedSize
}

// asked returns how many requests the page has sent since asked was last called.
func (p *tab) asked() string {
	p.t.Helper()
	return p.evaluate(
		"(() => { const n = performance.getEntriesByType('resource').filter(e => e.name.includes('/v1/')).length; " +
			"performance.clearResourceTimings(); return n })()",
	)
}

func (p *tab) number(expression string) int {
	p.t.Helper()
	n, err := strconv.Atoi(p.evaluate(expression))
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// Pages stay small, however many runs there are, and however many events a run has.
func TestConsoleOfManyRuns(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	s.db.Do("CREATE TABLE nmstrackinglogfar1 (LIKE nmstrackinglogrcp)") // no task covers it, which the log says
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := run.GetId()
	s.db.Do(
		fmt.Sprintf(
			`INSERT INTO cleanupd.run
				SELECT (jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid(), 'create_time',
				r.create_time - i * interval '1 hour'))).* FROM cleanupd.run r, generate_series(1, 999) i;
		INSERT INTO cleanupd.task SELECT (jsonb_populate_record(t, jsonb_build_object('run_id', r.id))).*
			FROM cleanupd.task t, cleanupd.run r WHERE t.run_id = '%[1]s' AND r.id <> t.run_id`,
			id,
		),
	)
	p := browse(t, s.url)
	p.open("#/runs", "History")
	listed := func() int { return p.number("document.querySelectorAll('tbody tr').length") }
	if n := listed(); n != 50 {
		t.Errorf("the history begins with %d runs", n)
	}
	p.until("it has asked for the tasks, too", "document.querySelectorAll('option').length > 30")
	p.asked()
	before := p.number(nodes)
	p.press("Show more")
	p.until("it shows more", "document.querySelectorAll('tbody tr').length === 100")
	if asked, more := p.asked(), p.number(nodes); asked != "1" || more > 2*before {
		t.Errorf("50 more runs take %s requests, and %d elements for %d", asked, more, before)
	}
	p.open("#/", "Overview")
	p.until("it draws the days", "[30, 31].includes(document.querySelectorAll('.chart a').length)")
	if n := p.number(nodes); n > 1000 {
		t.Errorf("the overview has %d elements", n)
	}

	// The run is active without a lease, and has had 90,000 events: every third one a line of the log.
	write := func(from, to int) {
		s.db.Do(fmt.Sprintf(`INSERT INTO cleanupd.event (run_id, sequence, generation, body)
				SELECT '%[1]s', i, e.generation, CASE
					WHEN i %% 3 = 0 THEN e.body || jsonb_build_object('Message', 'line ' || i)
					ELSE
						'{"Kind": "task_progress", "Task": "deliveries", "Progress": {"RowsDeleted": 1, "RowsPerSecond": 1000}}' END
				FROM generate_series(%[2]d, %[3]d) i, (SELECT * FROM cleanupd.event WHERE run_id = '%[1]s'
					AND body ->> 'Kind' = 'log' ORDER BY sequence LIMIT 1) e;
			UPDATE cleanupd.run SET last_sequence = %[3]d WHERE id = '%[1]s'`, id, from, to))
	}
	s.db.Do(
		fmt.Sprintf(
			`WITH e AS (DELETE FROM cleanupd.event WHERE run_id = '%[1]s' AND body ->> 'Kind' = 'run_finished'
				RETURNING *)
			INSERT INTO cleanupd.event SELECT run_id, 100000, time, generation, body FROM e;
		UPDATE cleanupd.run SET state = 'RUNNING', end_time = NULL, lease_until = now() + interval '1 day'
			WHERE id = '%[1]s'`,
			id,
		),
	)
	first := int(s.db.Int("SELECT max(sequence) FROM cleanupd.event WHERE sequence < 100000 AND run_id = '"+id+"'")) + 1
	write(first, 90_000)
	p.asked()
	p.open("#/runs/"+id, "Run")
	p.hasSeen(500)
	if n := listedLines(p); n > 500 {
		t.Errorf("it begins with %d lines", n)
	}
	held, few := p.heap(), p.number(nodes)
	write(90_001, 99_999)
	s.db.Do(fmt.Sprintf(
		`UPDATE cleanupd.run SET state = 'SUCCEEDED', end_time = now(), last_sequence = 100000 WHERE id = '%[1]s'`, id,
	))
	p.sees("succeeded ended", "100,000 events")
	p.hasSeen(10_500)
	if n := listedLines(p); n != 1000 {
		t.Errorf("of 10,000 events more it shows %d lines", n)
	}
	if now, all := p.heap(), p.number(nodes); now > 3*held || all > few+4000 {
		t.Errorf("10,000 events make %.0f bytes out of %.0f, and %d elements out of %d", now, held, all, few)
	}
	if asked := p.asked(); len(asked) > 1 {
		t.Errorf("it took %s requests", asked)
	}

	// Scrolling back and forth moves the view, and keeps the number of events in memory.
	newest := func() string { return p.evaluate("document.querySelector('.log .line:last-child').innerText") }
	if last := newest(); !strings.Contains(last, "line 99999") {
		t.Errorf("the newest line is %q", last)
	}
	line := p.number("Number(document.querySelector('.log .line').innerText.match(/line (\\d+)/)[1])")
	for range 3 {
		line -= 500
		p.press("Show earlier lines")
		p.until("it shows earlier lines",
			fmt.Sprintf("Math.abs(document.querySelector('.log .line').innerText.match(/line (\\d+)/)[1] - %d) <= 3",
				line))
	}
	if n := listedLines(p); n != 1000 {
		t.Errorf("it holds %d lines", n)
	}
	if last := newest(); strings.Contains(last, "line 99999") {
		t.Error("the newest lines have not made room")
	}
	const more = "[...document.querySelectorAll('button')].some(e => e.textContent === 'Show later lines')"
	for p.evaluate(more) == "true" {
		shown := newest()
		p.press("Show later lines")
		p.until("it shows later lines",
			"document.querySelector('.log .line:last-child').innerText !== "+quote(shown)+" || !"+more)
	}
	lines := "[...document.querySelectorAll('.log .line')].map(e => Number(e.innerText.match(/line (\\d+)/)?.[1] ?? " +
		"100000))"
	if gaps := p.evaluate(lines + ".filter((n, i, all) => i > 0 && n !== all[i - 1] + 3).length"); gaps != "0" ||
		!strings.Contains(newest(), "line 99999") {
		t.Errorf("there are %s gaps, and the last line is %s", gaps, newest())
	}
}

func listedLines(p *tab) int { return p.number("document.querySelectorAll('.log .line').length") }
