package service_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// A rule for process instances that ended long ago is created, refused where it is wrong, previewed, switched on, and
// removed.
func TestConsolePurges(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s, _, forms := formsServerAs(t, console(t, access.Config{}))
	forms.Do("ALTER TABLE tb_process_instance ADD ended date DEFAULT now() - interval '1 year'")
	p := browse(t, s.url)
	p.open("#/retention", "Retention")
	p.sees("No rules.")
	p.fill("Rule name", "old-loans")
	p.fill("Application", "Loans")
	p.fill("Date column", "status")
	p.fill("Older than, in days", "90")
	p.press("Create the rule")
	p.sees("tb_process_instance has no date column of this name; its date columns are: ended")
	p.fill("Date column", "ended")
	p.press("Create the rule")
	p.sees("forms/old-loans", "90 days")
	p.accessible(axe(t), "rules for process instances")
	p.evaluate("document.querySelector('[aria-label=\"Enabled: old-loans\"]').click()")
	s.db.Until("SELECT count(*) FROM cleanupd.forms_purge WHERE enabled")
	p.press("Preview the rule")
	p.until("it is the preview", "location.hash.startsWith('#/runs/')")
	p.sees("tb_process_instance", "Run exactly this")
	if forms.Int("SELECT count(*) FROM tb_process_instance") != 40 {
		t.Error("the preview deleted something")
	}
	p.open("#/retention", "Retention")
	p.sees("90 days")
	s.db.Do("UPDATE cleanupd.forms_purge SET days = 91") // by another user
	p.press("Remove")
	p.sees("Remove the rule old-loans?")
	p.evaluate("document.querySelector('dialog button.primary').click()")
	p.sees("Another user has changed these settings")
	p.press("Try again")
	p.sees("91 days")
	p.press("Remove")
	p.sees("Remove the rule old-loans?")
	p.evaluate("document.querySelector('dialog button.primary').click()")
	p.sees("No rules.")
}
