package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

func signIn(t *testing.T, s *server, role access.Role) *tab {
	t.Helper()
	p := browse(t, s.url)
	p.fill("Token", "secret-"+role.String())
	p.press("Sign in")
	p.sees("Nothing is deleted until you say so")
	return p
}

// The button may be disabled.
func (p *tab) hasButton(name string) bool {
	p.t.Helper()
	return p.evaluate("[...document.querySelectorAll('button')].some(b => b.textContent === "+quote(name)+")") == "true"
}

// The pace that is in effect.
const pressed = "document.querySelector('.choice [aria-pressed=true]')?.textContent"

// A run of sessions has 20,000 rows to delete, which takes minutes until release is called.
func slow(s *server) (release func()) {
	s.db.Do(`CREATE TABLE released (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN IF NOT EXISTS (SELECT FROM released) THEN PERFORM pg_sleep(0.01); END IF; RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION wait();
		INSERT INTO XtkSessionInfo (sKey, tsExpiration)
			SELECT i::text, now() - '1 day'::interval FROM generate_series(1, 20000) i`)
	return func() { s.db.Do("INSERT INTO released DEFAULT VALUES") }
}

// An operator starts a run with a pace, changes the pace, and pauses and resumes the run. A viewer sees that.
func TestConsolePausesARun(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	script := axe(t)
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	release := slow(s)
	p, viewer := signIn(t, s, access.Operator), signIn(t, s, access.Viewer)
	p.open("#/preview", "Preview")
	p.press("Run without a preview …")
	p.fill("Pace", "PACE_FAST")
	p.check(script, "the start of a run")
	p.press("Run now")
	p.sees("running since", "sessions (task ", "pace: Fast", "All workers run all the time")
	p.until("the pace is marked", pressed+" === 'Fast'")
	run := p.evaluate("location.hash")
	viewer.open(run, "Run ·")
	viewer.sees("running since", "pace: Fast")

	p.press("Gentle")
	s.db.Until("SELECT count(*) FROM cleanupd.run WHERE pace = 'GENTLE'")
	p.until("the pace is marked", pressed+" === 'Gentle'")
	p.sees("token:the-operator changed the pace to GENTLE")

	p.evaluate("document.querySelector('h1').focus()")
	p.reach("button", "Pause")
	p.key(kb.Enter)
	p.sees("paused by token:the-operator since")
	p.until("the focus stays", "document.activeElement.textContent === 'Resume'")
	if said := p.evaluate("document.querySelector('[role=status]').textContent"); !strings.Contains(
		said, "paused by token:the-operator",
	) {
		t.Errorf("a screen reader says %q", said)
	}
	if states := p.evaluate(
		"[...document.querySelectorAll('td .badge')].map(b => b.textContent).filter(s => /paused|running/.test(s)).join()",
	); states != "paused" {
		t.Errorf("the tasks that have begun are %s, want one that is paused", states)
	}
	p.accessible(script, "a paused run")
	p.round("a paused run")
	viewer.sees("paused by token:the-operator since")
	for _, name := range []string{"Pause", "Resume", "Gentle", "Balanced", "Fast", "Cancel the run"} {
		if viewer.hasButton(name) {
			t.Errorf("a viewer is offered %s", name)
		}
	}
	viewer.open("#/", "Overview")
	viewer.sees("A run is paused by token:the-operator.", "Active run")
	viewer.accessible(script, "the overview during a pause")
	viewer.open("#/runs", "History")
	listed := func(n int) string {
		return fmt.Sprintf("document.querySelectorAll('tbody tr').length === %d", n)
	}
	viewer.fill("State", "RUN_STATE_RUNNING")
	viewer.until("no run is running", listed(0))
	viewer.fill("State", "RUN_STATE_PAUSED")
	viewer.until("one is paused", listed(1))
	viewer.open(run, "Run ·")

	p.press("Balanced")
	p.until("the pace is marked", pressed+" === 'Balanced'")
	p.sees("paused by token:the-operator since")
	p.press("Resume")
	p.sees("running since")
	viewer.sees("running since", "pace: Balanced")
	release()
	for _, tab := range []*tab{p, viewer} {
		tab.sees("succeeded ended", "20,000 rows deleted", "resumed by token:the-operator")
	}
	if p.hasButton("Pause") || p.hasButton("Gentle") {
		t.Error("a run that has ended can be paused")
	}
}

// A page shows refusals, and sends nothing twice.
func TestConsoleWaitsForAPause(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	id := run.GetId()
	const why = "commits take 9.1 ms, 4.0 ms without batches; batches of 12.5 ms, then pauses 3.2 times as long"
	// The run is active, and the replica that has it does not answer.
	s.db.Do(`DELETE FROM cleanupd.event WHERE run_id = $1 AND body->>'Kind' IN ('task_finished', 'run_finished')`, id)
	s.db.Do(`UPDATE cleanupd.task SET state = 'RUNNING', end_time = NULL WHERE run_id = $1 AND name = 'sessions'`, id)
	s.db.Do(
		`UPDATE cleanupd.run SET state = 'RUNNING', end_time = NULL, replica = 'other', pace = 'GENTLE',
			lease_until = now() + interval '1 day',
			last_sequence = (SELECT max(sequence) FROM cleanupd.event WHERE run_id = $1) WHERE id = $1`, id,
	)
	p := browse(t, s.url)
	p.open("#/runs/"+id, "Run ·")
	p.sees("running since")
	s.db.Do(
		`WITH r AS (UPDATE cleanupd.run SET last_sequence = last_sequence + 1 WHERE id = $1 RETURNING *)
		INSERT INTO cleanupd.event (run_id, sequence, generation, body)
			SELECT r.id, r.last_sequence, e.generation, '{"Kind": "task_progress", "Task": "sessions", "Progress":
				{"Pace": "GENTLE", "Throttle": "gentle pace: `+why+`"}}'
			FROM r, (SELECT max(generation) AS generation FROM cleanupd.event WHERE run_id = $1) e`, id,
	)
	p.sees("pace: Gentle", "waiting: gentle pace "+why)
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(360, 800)); err != nil {
		t.Fatal(err)
	}
	if out := p.evaluate(`[...document.querySelectorAll('td, .pace *')].filter(
		e => e.getBoundingClientRect().right > 360).map(e => e.innerText).join()`); out != "" {
		t.Errorf("this is beyond a screen of 360 pixels: %s", out)
	}
	p.accessible(axe(t), "a gentle run")
	p.evaluate(`(() => {
		window.sent = []
		const real = window.fetch
		window.fetch = (path, ...rest) => {
			if (/:(pause|pace|resume)$/.test(path)) sent.push(path)
			return real(path, ...rest)
		}
	})()`)
	p.press("Pause")
	// The server waits for the replica for seconds.
	p.until("the buttons wait",
		"[...document.querySelectorAll('.choice button')].every(b => b.ariaDisabled === 'true')")
	p.evaluate(`[...document.querySelectorAll('header button, .choice button')].filter(
		b => b.textContent !== 'Cancel the run').forEach(b => b.click())`)
	p.until("the buttons can be used", "document.querySelector('.choice button').ariaDisabled === 'false'")
	if sent := p.evaluate("sent.length"); sent != "1" {
		t.Errorf("%s requests were sent, want 1", sent)
	}
	p.sees("paused by 127.0.0.1")
	if p.evaluate("document.body.innerText.includes('waiting:')") != "false" {
		t.Error("a batch of a paused run waits")
	}
	s.db.Do("UPDATE cleanupd.run SET paused_by = 'schedule' WHERE id = $1", id)
	p.evaluate("location.reload()")
	p.sees("paused outside of the windows of the schedule since")
	p.press("Pause") // so that no window ends the pause
	p.sees("paused by 127.0.0.1")
	s.db.Do("UPDATE cleanupd.run SET state = 'CANCELLED', cause = 'CANCELLED', end_time = now() WHERE id = $1", id)
	p.press("Fast")
	p.until("it says why not", "document.querySelector('[role=alert]')?.textContent.includes('the run has ended')")
	p.until("the pace is as before", pressed+" === 'Gentle'")
}

// Windows are added, corrected where the server says so, and removed by the keyboard.
func TestConsoleSetsWindows(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	script := axe(t)
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	p, viewer := signIn(t, s, access.Admin), signIn(t, s, access.Viewer)
	p.open("#/schedule", "Schedule")
	p.press("Run automatically")
	p.fill("Pace", "PACE_GENTLE")
	p.press("The maximum duration does not count pauses")
	p.evaluate("document.querySelector('h1').focus()")
	p.reach("button", "Add a window")
	p.key(kb.Enter)
	p.until("the focus is in the new window", "document.activeElement.closest('.window label')?.innerText === 'Mon'")
	p.sees("every day")
	p.key(" ")
	p.reach("input[type=checkbox]", "Fri")
	p.key(" ")
	p.reach("input[type=time]", "Start")
	p.key("1000PM")
	p.reach("button", "Save")
	p.key(kb.Enter)
	p.until(
		"it says at the field what is wrong",
		`(field => field === document.querySelectorAll('input[type=time]')[1] &&
		field.closest('label').querySelector('[role=alert]').innerText === '"" is not a time of day, such as 22:00'
		)(document.querySelector('[aria-invalid=true]'))`,
	)
	p.until("the focus is there", "document.activeElement.matches('[aria-invalid=true]')")
	if n := p.evaluate("document.querySelectorAll('[role=alert]').length"); n != "1" {
		t.Errorf("it says %s times what is wrong", n)
	}
	p.accessible(script, "windows")
	p.round("windows")
	p.fill("End", "06:00")
	p.press("Save")
	isStored := func(windows string) {
		t.Helper()
		s.db.Until(
			`SELECT count(*) FROM cleanupd.schedule
				WHERE windows = $1::jsonb AND pace = 'GENTLE' AND pause_stops_clock`,
			windows,
		)
	}
	isStored(`[{"start": "22:00", "end": "06:00", "days": ["MON", "FRI"]}]`)
	p.until("it draws the week", "document.querySelectorAll('.week .open').length >= 4")
	p.accessible(script, "the week with windows")

	p.press("Add a window")
	p.until("there are two", "document.querySelectorAll('div.window').length === 2")
	p.evaluate("[...document.querySelectorAll('div.window')].at(0).querySelector('button').click()")
	p.until("there is one, and the focus is kept",
		"document.querySelectorAll('div.window').length === 1 && document.activeElement.textContent === 'Add a window'")
	p.fill("Start", "08:00")
	p.fill("End", "12:30")
	p.evaluate(`(select => { select.value = 'PACE_FAST'; select.dispatchEvent(new Event('change')) })(
		document.querySelector('.window select'))`)
	p.press("Save")
	isStored(`[{"start": "08:00", "end": "12:30", "pace": "FAST"}]`)
	p.until("it draws the week", "document.querySelectorAll('.week .open').length === 7")

	for range 20 {
		p.press("Add a window")
	}
	p.press("Save")
	p.sees("has 21 windows: 20 at most")
	viewer.open("#/schedule", "Schedule")
	viewer.until("it shows the window", "document.querySelector('input[type=time]')?.value === '08:00'")
	if viewer.hasButton("Add a window") || viewer.hasButton("Remove") || viewer.evaluate(
		"document.querySelector('input[type=time]').matches(':disabled')",
	) != "true" {
		t.Error("a viewer may change windows")
	}
	viewer.accessible(script, "windows of a viewer")
}
