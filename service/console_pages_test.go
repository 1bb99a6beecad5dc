package service_test

import (
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// The hash, the title, and who is offered it.
var pages = []struct {
	hash, title string
	role        access.Role
}{
	{"#/", "Overview", access.Viewer},
	{"#/runs", "History", access.Viewer},
	{"#/preview", "Preview", access.Viewer},
	{"#/retention", "Retention", access.Viewer},
	{"#/policies", "Policies", access.Viewer},
	{"#/schedule", "Schedule", access.Viewer},
	{"#/guards", "Guards", access.Admin},
	{"#/holds", "Holds", access.Admin},
	{"#/trash", "Trash", access.Viewer},
	{"#/tables", "Tables", access.Viewer},
	{"#/forecast", "Forecast", access.Viewer},
	{"#/explain", "Explain", access.Viewer},
	{"#/audit", "Audit", access.Admin},
	{"#/about", "About", access.Viewer},
}

// axe checks accessibility, and comes with the tools that build the console; nil: it is not there.
func axe(t *testing.T) []byte {
	t.Helper()
	script, err := os.ReadFile("../web/node_modules/axe-core/axe.min.js")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("without npm ci in web/, accessibility is not tested: %v", err)
	}
	return script
}

func TestConsolePages(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	script := axe(t)
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Admin} {
		p := browse(t, s.url)
		p.sees("Sign in")
		if role == access.Viewer {
			p.accessible(script, "Sign in")
		}
		p.fill("Token", "secret-nobody")
		p.press("Sign in")
		p.until("it says why not", "document.querySelector('[role=alert]') !== null")
		p.fill("Token", "secret-"+role.String())
		p.press("Sign in")
		p.sees("Nothing is deleted until you say so")
		var want []string
		for _, page := range pages {
			if role < page.role {
				continue
			}
			want = append(want, page.title)
			p.open(page.hash, page.title)
			if role == access.Viewer { // TestConsoleSpeaks looks at an administrator's
				p.accessible(script, page.title+" of a viewer")
			}
		}
		offered := strings.Split(
			p.evaluate("[...document.querySelectorAll('nav > a:not(.brand)')].map(a => a.textContent).join()"), ",")
		if !slices.Equal(offered, want) {
			t.Errorf("a %s is offered %v, want %v", role, offered, want)
		}
		p.open("#/schedule", "Schedule")
		if got := p.evaluate(
			"document.querySelector('button.primary') !== null",
		); (got == "true") != (role == access.Admin) {
			t.Errorf("a %s may save the schedule: %s", role, got)
		}
	}
}

// Each page names the database and the instance, but not to strangers.
func TestConsoleNamesTheDatabase(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	p := browse(t, s.url)
	p.sees("Sign in")
	const place = "document.querySelector('nav .database')"
	if p.evaluate(place) != "null" {
		t.Error("a stranger sees the name of the database")
	}
	// the server of the tests has no name
	p.evaluate(`(json => { Response.prototype.json = async function () {
		return { ...await json.call(this), instance: 'production' } } })(Response.prototype.json)`)
	p.fill("Token", "secret-"+access.Viewer.String())
	p.press("Sign in")
	p.open("#/schedule", "Schedule")
	want := s.db.Strings("SELECT current_database()")[0] + " · Instance production"
	if got := p.evaluate(place + ".innerText"); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	server := s.call(t, "GET", "/v1/server", "", "Authorization", "Bearer secret-viewer").body
	if host := p.evaluate(place + ".title"); !strings.Contains(server, `"databaseHost":`+quote(host)) {
		t.Errorf("its host is %q: %s", host, server)
	}
}

func TestConsoleRunsAPlan(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	s.db.Do(
		"INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified) SELECT i, 0, 0, now() - '1 " +
			"year'::interval FROM generate_series(1, 1000) i",
	)
	s.db.Do(
		`INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, now() - '1 day'::interval
			FROM generate_series(1, 50) i`,
	)
	p := browse(t, s.url)
	p.open("#/guards", "Guards")
	p.fill("Minimum number of rows", "10")
	p.press("Save")
	p.until("it is saved", "fetch('/v1/guards').then(r => r.json()).then(g => g.guards.minRows === '10')")

	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{}); err == nil {
		t.Error("no guard has tripped")
	}
	p.evaluate("location.reload()")
	p.sees("It would delete or update too much of a large table")

	p.open("#/preview", "Preview")
	p.press("Start the preview")
	p.sees("What a run would delete", "1,000 rows to delete", "1 guard refuses it", "Guards refuse the tasks")
	if n := p.evaluate("document.querySelectorAll('details.task:not([open])').length"); n != "2" {
		t.Errorf("%s tasks are shown, and folded, want 2", n)
	}
	preview := p.evaluate("location.hash")
	p.press("Run exactly this")
	p.sees(s.db.Strings("SELECT current_database()")[0]+" · ",
		"more than 50% of a large table: 1,000 of about 1,000 rows")
	run := "document.querySelector('dialog button.primary').disabled"
	if p.evaluate(run) != "true" {
		t.Error("a plan can be run without the number of its guard")
	}
	p.fill("Type 1,000 to accept", "999")
	if p.evaluate(run) != "true" {
		t.Error("a plan can be run with another number")
	}
	p.fill("Type 1,000 to accept", "1,000")
	p.press("Run exactly this")
	p.sees("from this saved plan", "succeeded ended", "1,050 rows deleted", "Space", "Rows per second",
		"Nothing to delete: ")
	if rows := p.evaluate("document.querySelectorAll('section [aria-label=Tasks] tbody tr').length"); rows != "2" {
		t.Errorf("%s tasks are shown, want the 2 that deleted rows", rows)
	}
	if n := s.db.Int(
		"SELECT (SELECT count(*) FROM NmsVisitor WHERE iVisitorId > 0) + (SELECT count(*) FROM XtkSessionInfo)",
	); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	id := strings.TrimPrefix(p.evaluate("location.hash"), "#/runs/")
	p.hasSeen(s.db.Int("SELECT count(*) FROM cleanupd.event WHERE run_id = '" + id + "'"))
	p.open(preview, "Dry run")
	p.sees("This preview was run.")
	if p.evaluate(control("Run exactly this")) != "undefined" {
		t.Error("a preview that was run is offered again")
	}
	p.open("#/", "Overview")
	p.sees("1,050", "visitors", "No runs are scheduled.")
}

// The overview judges runs of the whole pipeline, and shows each of their warnings.
func TestConsoleJudgesWholeRuns(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	s.db.Do("INSERT INTO XtkWorkflow (iWorkflowId, sInternalName, iState) VALUES (7, 'cleanup', 11)")
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}}); err != nil {
		t.Fatal(err)
	}
	p := browse(t, s.url)
	p.sees("No run of all tasks has ended yet.", "the application's own cleanup workflow is also running")
	p.until("it has 5 labels of days, and 3 of rows", "document.querySelectorAll('.chart text').length === 8")
	s.db.Do("UPDATE XtkWorkflow SET iState = 20")
	s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('a', '2000-01-01');
		CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER keep BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION keep()`)
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"visitors"}}); err != nil {
		t.Fatal(err)
	}
	p.evaluate("location.reload()")
	p.sees("The last run of all tasks retained 1 obsolete row.", " more")
	p.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
	p.sees("xtksessioninfo: 1 obsolete row is retained")
	if p.evaluate("document.body.innerText.includes('own workflow')") != "false" {
		t.Error("the overview shows a warning of an earlier run")
	}
}

// Two tabs of a browser follow a run to its end, although their connections are cut. Another run is cancelled.
func TestConsoleFollowsARun(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	server, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 100)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(server)
		if strings.HasSuffix(r.In.URL.Path, "/events") {
			asked <- struct{}{}
		}
	}, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0)})
	defer proxy.Close()
	p := browse(t, proxy.URL)
	p.cut = true
	begin := func() {
		p.open("#/preview", "Preview")
		p.press("Run without a preview …")
		p.press("Run now")
		p.until("it shows the run", "document.querySelector('h1').textContent.startsWith('Run ·')")
	}
	release := slow(s)
	begin()
	p.sees("running since", "rows so far", "sessions (task ")
	q := p.another(p.evaluate("location.href"))
	q.cut = true
	q.sees("running since")
	for len(asked) > 0 {
		<-asked
	}
	proxy.CloseClientConnections()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("the page does not ask for the events again")
	}
	release()
	id := p.evaluate("location.hash.replace('#/runs/', '')")
	for _, tab := range []*tab{p, q} {
		tab.sees("succeeded ended", "20,000 rows deleted")
		tab.hasSeen(s.db.Int("SELECT count(*) FROM cleanupd.event WHERE run_id = '" + id + "'"))
	}

	s.db.Do("DROP TABLE released; DROP FUNCTION wait() CASCADE")
	slow(s)
	begin()
	p.press("Cancel the run")
	p.sees("cannot be restored")
	p.press("Cancel the run")
	p.sees("cancelled ended")
}

func TestConsoleChangesRetention(t *testing.T) {
	t.Parallel()
	s := withConsole(t, access.Config{})
	s.db.Do(
		"INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified) SELECT i, 0, 0, now() - i * " +
			"interval '1 day' FROM generate_series(1, 100) i",
	)
	p := browse(t, s.url)
	stored := func() int64 {
		return s.db.Int("SELECT iLongValue FROM XtkOption WHERE sName = 'NmsCleanup_VisitorPurgeDelay'")
	}
	p.open("#/retention", "Retention")
	p.fill("Visitor profiles", "60")
	p.press("Show the effect")
	p.sees("Effect of the changes", "−30")
	p.press("Save")
	p.until("it is saved", "!document.querySelector('.sticky')")
	if n := stored(); n != 60*86400 {
		t.Errorf("%d seconds are stored", n)
	}
	p.fill("Visitor profiles", "61")
	s.db.Do("UPDATE XtkOption SET iLongValue = 90 * 86400 WHERE sName = 'NmsCleanup_VisitorPurgeDelay'")
	p.press("Save")
	p.sees("Another user has changed these settings")
	if n := stored(); n != 90*86400 {
		t.Errorf("%d seconds are stored over the other one's 90 days", n)
	}
	p.press("Try again")
	p.until("the other one's is shown",
		"document.querySelector('input[type=number][aria-labelledby=visitorPurgeDelayDays]')?.value === '90'")
}

// A change that another user has stored since the page was loaded is not overwritten, but shown.
func TestConsoleConflicts(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	p := browse(t, s.url)
	p.open("#/schedule", "Schedule")
	p.fill("Time zone", "Europe/Berlin")
	if _, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{
		Schedule:   &cleanupv1.Schedule{Cron: "7 4 * * *", Undo: durationpb.New(72 * time.Hour)},
		UpdateMask: mask("cron", "undo"),
	}); err != nil {
		t.Fatal(err)
	}
	p.press("Save")
	p.sees("Another user has changed these settings")
	p.press("Try again")
	p.until("the other one's is shown", "document.querySelector('textarea')?.value === '7 4 * * *'")
	p.fill("Time zone", "Europe/Berlin")
	p.press("Save")
	s.db.Until(`SELECT count(*) FROM cleanupd.schedule
		WHERE cron = '7 4 * * *' AND time_zone = 'Europe/Berlin' AND undo = '72 hours'`)

	p.open("#/guards", "Guards")
	p.until("the limits are shown", "document.querySelector('input[type=checkbox]')?.checked === true")
	if _, err := s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{
		Guards: &cleanupv1.Guards{Cutoff: new(false)}, UpdateMask: mask("cutoff"),
	}); err != nil {
		t.Fatal(err)
	}
	p.press("Save")
	p.sees("Another user has changed these settings")
	p.press("Try again")
	p.until("the other one's is shown", "document.querySelector('input[type=checkbox]')?.checked === false")
}

func TestConsoleHoldsAndSchedules(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	hostile := `<img src=x onerror=alert(1)>`
	s.db.Do(`CREATE TABLE "` + hostile + `" (id int PRIMARY KEY)`)
	p := browse(t, s.url)
	p.open("#/holds", "Holds")
	p.fill("What", "table")
	p.fill("Table name", hostile)
	p.fill("Reason", hostile)
	p.press("Hold")
	p.sees(hostile, "released")
	if p.evaluate("document.querySelector('img')") != "null" {
		t.Error("a name has become an element")
	}
	p.press("Release")
	p.sees("The next run may delete this data.")
	p.press("Release")
	p.sees("No holds.")
	p.open("#/schedule", "Schedule")
	p.press("Run automatically")
	p.fill("Times", "30 3 * * 1-6\n0 12 * * *")
	p.fill("Time zone", "Europe/Berlin")
	p.fill("Maximum duration, in hours", "2")
	p.fill("Undo, in hours", "36")
	p.press("Save")
	s.db.Until("SELECT count(*) FROM cleanupd.schedule WHERE max_duration = '2 hours' AND undo = '36 hours'")
	p.until("it draws the week",
		"document.querySelectorAll('.week rect').length > 8 && document.querySelectorAll('li time').length === 10")
	p.fill("Times", "never")
	p.press("Save")
	p.until("it says at the field what is wrong",
		"document.querySelector('textarea[aria-invalid=true] ~ [role=alert]')?.textContent.includes('five fields')")
	p.open("#/audit", "Audit")
	p.sees("CreateHold", "ReleaseHold", "SetSchedule", "unnamed", "127.0.0.1")
	p.fill("Filter", "releasehold")
	p.until("it shows the entries that match", "document.querySelectorAll('tbody tr').length === 1")
	p.open("#/explain/nmsvisitor/4711", "Explain")
	p.sees("Row not found.", "Runs that deleted rows of this table")
	p.until("the tables can be chosen", "document.querySelector('#tables option[value=nmsvisitor]') !== null")
	p.sees("app-subscriptions")
	p.fill("Or the statements of a task", "visitors")
	p.sees("DELETE FROM ONLY", "iOrigin is 0", "$1 = ")
	p.open("#/retention", "Retention")
	p.sees("NmsCleanup_BroadLogPurgeDelay", "XtkCleanup_AuditTrailPurgeDelay")
}

func TestConsoleSignsIn(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	i := newIssuer(t)
	s := withConsole(t, access.Config{Issuer: i.url, Audience: "cleanupd", ClientID: "console"})
	p := browse(t, s.url+"/#/about")
	p.until("it offers the issuer", "document.querySelector('button.primary') !== null")
	p.evaluate("document.querySelector('button.primary').click()")
	p.sees("Administrator", "jane")
	if at := p.evaluate("location.href"); at != s.url+"/#/about" {
		t.Errorf("the address after the sign-in: %s", at)
	}
	if kept := p.evaluate("sessionStorage.length + localStorage.length"); kept != "0" {
		t.Errorf("%s values are kept", kept)
	}
	p.mu.Lock()
	delete(p.hosts, i.url) // the redirect
	p.mu.Unlock()
	p.press("Sign out")
	p.sees("Sign in with")
}

// Viewers may cancel dry runs that they have started, but no other run.
func TestConsoleOffersToCancel(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	// a dry run waits seconds for each
	s.db.Hold("LOCK TABLE XtkSessionInfo, NmsMirrorPageInfo, NmsVisitor, NmsAddress, XtkAudit, XtkWorkflowLogin")
	signedIn := func(role access.Role) *tab {
		p := signIn(t, s, role)
		p.open("#/preview", "Preview")
		return p
	}
	viewer, operator := signedIn(access.Viewer), signedIn(access.Operator)
	operator.press("Start the preview")
	operator.sees("running since")
	viewer.open(operator.evaluate("location.hash"), "Dry run ·")
	viewer.sees("running since")
	if viewer.evaluate(
		"[...document.querySelectorAll('button')].some(b => b.textContent === 'Cancel the run')",
	) != "false" {
		t.Error("a viewer is offered to cancel a dry run of somebody else")
	}
	viewer.open("#/preview", "Preview")
	viewer.press("Start the preview")
	for _, p := range []*tab{operator, viewer} {
		p.press("Cancel the run")
		p.sees("cannot be restored")
		p.press("Cancel the run")
		p.sees("cancelled ended")
	}
}

// An address that is encoded wrongly does not leave the console blank.
func TestConsoleOfABrokenAddress(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	p := browse(t, s.url)
	for _, hash := range []string{"#/%zz", "#/runs/%E0%A4%A"} {
		p.evaluate("location.hash = " + quote(hash))
		p.evaluate("location.reload()")
		p.until("it shows the menu at "+hash, "document.querySelector('nav a') !== null")
	}
}
