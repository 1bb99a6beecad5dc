package service_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// A run keeps deleted rows for as long as its form says, or else for as long as the server's setting says.
func TestConsoleRunsWithUndo(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 7) i`)
	p := browse(t, s.url)
	p.sees("Sign in")
	// as serve --undo 36h does; the server of the tests has none
	p.evaluate(`(json => { Response.prototype.json = async function () {
		return { ...await json.call(this), undo: '129600s' } } })(Response.prototype.json)`)
	p.fill("Token", "secret-operator")
	p.press("Sign in")
	p.open("#/preview", "Preview")
	p.press("Run without a preview …")
	p.sees("What is deleted waits in the trash for 1 day 12 hr, and can be restored. Policies may say otherwise.")
	p.fill("Undo, in hours", "0")
	p.sees("What is deleted cannot be restored.")
	p.until("no policy says otherwise", "!document.querySelector('dialog').innerText.includes('Policies')")
	p.fill("Undo, in hours", "0.5")
	p.press("Run now")
	p.sees("succeeded ended", "7 rows deleted")
	if kept := s.db.Strings("SELECT undo::text FROM cleanupd.task WHERE name = 'sessions'")[0]; kept != "00:30:00" {
		t.Errorf("the run keeps what it deletes for %s, want 30 minutes", kept)
	}
}

// What a run deleted is brought back from its page, and the rest is deleted for good, after the number of rows is typed
// in.
func TestConsoleUndoesARun(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	script := axe(t)
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 1200) i`)
	p, viewer, operator := signIn(t, s, access.Admin), signIn(t, s, access.Viewer), signIn(t, s, access.Operator)
	p.open("#/trash", "Trash")
	p.sees("Undo is off by default.", "cleanupd serve --undo 72h", "The trash is empty.")
	p.open("#/preview", "Preview")
	p.press("Run without a preview …")
	p.fill("Undo, in hours", "72")
	p.press("Run now")
	p.sees("succeeded ended", "1,200 rows deleted", "Undo until", "1,200 rows in the trash")
	run := p.evaluate("location.hash")
	s.db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('1', now() + '1 day')")
	for _, q := range []*tab{viewer, operator} {
		for hash, title := range map[string]string{run: "Run ·", "#/trash": "Trash"} {
			q.open(hash, title)
			q.sees("1,200")
			if q.hasButton("Restore") || q.hasButton("Delete for good") {
				t.Errorf("%s offers to empty the trash to who is no administrator", hash)
			}
		}
	}
	p.confirm(t, s, "Restore", "1,200")
	p.sees("of what this run deleted", "succeeded ended", "1,199 rows restored", "1 row was not restored")
	const counts = "[...document.querySelectorAll('section [aria-label=Tasks] tbody td.number')]" +
		".slice(0, 3).map(e => e.dataset.title + ' ' + e.textContent).join()"
	if got := p.evaluate(counts); got != "Restored 1,199,Existing 1,Failed 0" {
		t.Errorf("the task has %s", got)
	}
	p.accessible(script, "a restore")
	if n := s.db.Int("SELECT count(*) FROM XtkSessionInfo"); n != 1200 {
		t.Errorf("the table has %d rows, want 1,200", n)
	}
	p.open("#/runs", "History")
	p.sees("restored 1,199")
	p.open("#/", "Overview")
	p.until("it shows the last cleanup", "[...document.querySelectorAll('.big')].some(e => e.textContent === '1,200')")
	p.open("#/trash", "Trash")
	p.accessible(script, "the trash of an admin")
	p.round("the trash")
	p.confirm(t, s, "Delete for good", "1")
	p.sees("1 row deleted for good.", "The trash is empty.")
	p.titleHasFocus()
}

// A deleted row is found by its key, and comes back alone.
func TestConsoleRestoresARow(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{TokenFile: tokenFile(t)})
	s.db.Do(`INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
		SELECT i, 0, 0, '2020-01-01' FROM generate_series(1, 20) i`)
	p, viewer := signIn(t, s, access.Admin), signIn(t, s, access.Viewer)
	p.open("#/preview", "Preview")
	p.press("Run without a preview …")
	p.fill("Undo, in hours", "72")
	p.press("Run now")
	p.sees("succeeded ended", "20 rows deleted")
	for _, q := range []*tab{p, viewer} {
		q.open("#/explain/NmsVisitor/4", "Explain")
		q.sees("Row not found.", "Trash · visitors · Expires")
		if want := q == p; q.hasButton("Restore") != want {
			t.Errorf("the row can be restored: %t, want %t", !want, want)
		}
	}
	p.accessible(axe(t), "the explanation of a deleted row")
	p.press("Restore")
	p.sees(s.db.Strings("SELECT current_database()")[0]+" · ", `"public"."nmsvisitor" 4`)
	p.press("Restore")
	p.sees("of what this run deleted", "succeeded ended", "1 row restored")
	ids := s.db.Strings("SELECT iVisitorId::text FROM NmsVisitor WHERE iVisitorId > 0")
	if len(ids) != 1 || ids[0] != "4" {
		t.Errorf("the table has the rows %s, want 4", ids)
	}
}

// The action is offered once the number of rows is typed in, and no other number.
func (p *tab) confirm(t *testing.T, s *server, action, number string) {
	t.Helper()
	const ready = "!document.querySelector('dialog button.primary').disabled"
	p.press(action)
	p.sees(s.db.Strings("SELECT current_database()")[0] + " · ")
	p.check(axe(t), "the question before "+action)
	label := "Type " + number + " to confirm"
	for _, wrong := range []string{"", number + "0"} {
		p.fill(label, wrong)
		if p.evaluate(ready) == "true" {
			t.Errorf("%q is typed, and it is confirmed", wrong)
		}
	}
	p.fill(label, strings.ReplaceAll(number, ",", ""))
	p.until("it is confirmed", ready)
	p.press(action)
}

// Some tables of a run are restored, or deleted for good, and the others stay.
func TestConsoleEmptiesATable(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 10) i;
		ALTER TABLE XtkSessionInfo ADD UNIQUE (sKey);
		CREATE TABLE visit (session varchar REFERENCES XtkSessionInfo (sKey) ON DELETE CASCADE);
		INSERT INTO visit VALUES ('1'), ('1'), ('2');
		INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
			SELECT i, 0, 0, '2020-01-01' FROM generate_series(1, 20) i`)
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{
		Tasks: []string{"sessions", "visitors"}, Undo: durationpb.New(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{
		Reason: "a test", What: &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: "visit"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := browse(t, s.url)
	p.open("#/trash", "Trash")
	skip := func(action string, tables ...string) {
		t.Helper()
		p.press(action)
		for _, table := range tables {
			p.press(table)
		}
	}
	skip("Delete for good", `"public"."nmsvisitor" 20 rows in the trash`, `"public"."xtksessioninfo" 10 rows in the trash`)
	p.fill("Type 3 to confirm", "3")
	p.press("Delete for good")
	p.sees("a hold may be about rows of")
	if _, err := s.ReleaseHold(t.Context(), &cleanupv1.ReleaseHoldRequest{HoldId: hold.GetHold().GetId()}); err != nil {
		t.Fatal(err)
	}
	p.press("Delete for good")
	p.sees("3 rows deleted for good.")
	skip("Restore", `"public"."nmsvisitor" 20 rows in the trash`)
	p.fill("Into a new schema", "pg_back")
	p.fill("Type 10 to confirm", "10")
	p.press("Restore")
	p.sees("must not be a schema of PostgreSQL or cleanupd")
	p.fill("Into a new schema", "back")
	p.press("Restore")
	p.sees("succeeded ended", "10 rows restored")
	if n := s.db.Int("SELECT count(*) FROM back.xtksessioninfo"); n != 10 {
		t.Errorf("the new table has %d rows, want 10", n)
	}
	p.open("#/runs/"+run.GetId(), "Run ·")
	p.sees("20 rows in the trash")
}
