package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// A person's data is found, with the reasons, and previewed. It is erased once the user id is typed in. The receipt is
// shown, and verified.
func TestConsoleErasesAPerson(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s, _, forms := formsServerAs(t, console(t, access.Config{TokenFile: tokenFile(t)}))
	const page = "#/userdata"
	signIn := func(role access.Role) *tab {
		p := browse(t, s.url)
		p.fill("Token", "secret-"+role.String())
		p.press("Sign in")
		p.sees("Nothing is deleted until you say so")
		return p
	}
	for _, role := range []access.Role{access.Viewer, access.Operator} {
		p := signIn(role)
		p.evaluate("location.hash = '" + page + "'")
		p.sees("Page not found.")
		if p.evaluate("document.querySelector('nav a[href=\""+page+"\"]')") != "null" {
			t.Errorf("a %s is offered the data of users", role)
		}
	}

	p := signIn(access.Admin)
	p.open(page, "User data")
	p.sees("No data has been erased.")
	p.accessible(axe(t), "User data")
	p.fill("User ID", "nobody")
	p.press("Find")
	p.sees("Nothing found.")
	p.fill("User ID", "ann")
	p.press("Add a variable")
	p.fill("Application", "Loans")
	p.fill("Workflow", "folder/sub/review")
	p.press("Find")
	p.sees("started it", "took part", "part of a value", "tasks without a process instance", "What cannot be searched")
	sure := p.number("document.querySelectorAll('tbody input:checked').length")
	if unsure := p.number("document.querySelectorAll('tbody input').length") - sure; sure == 0 || unsure == 0 {
		t.Errorf("%d process instances are chosen, and %d are not", sure, unsure)
	}
	erase := "[...document.querySelectorAll('.actions button.primary')].some(e => e.textContent === 'Erase' && " +
		"!e.disabled)"
	if p.evaluate(erase) != "false" {
		t.Error("what nobody has previewed can be erased")
	}
	p.press("Preview the erasure")
	p.sees("tb_task")
	if s.db.Int("SELECT count(*) FROM cleanupd.erasure") != 0 {
		t.Error("the preview has erased something")
	}
	p.accessible(axe(t), "what is found")
	one := "document.querySelector('tbody input:checked')"
	p.evaluate(one + ".click()")
	p.until("another choice needs another preview", "!"+erase)
	p.evaluate("document.querySelector('tbody input:not(:checked)').click()")
	p.until("it is the choice that was previewed", erase)
	p.press("Erase")
	p.sees("erased for good")
	if p.evaluate("document.querySelector('dialog button.primary').disabled") != "true" {
		t.Error("it can be erased without the user id")
	}
	p.accessible(axe(t), "the question")
	p.fill("Type ann to confirm", "ann")
	p.press("Erase")
	p.sees("Erased: ")
	id := s.db.Strings("SELECT id::text FROM cleanupd.erasure")[0]
	p.press("Receipt")
	p.until("it is the receipt",
		"location.hash === '"+page+"/"+id+"' && document.querySelector('h1').textContent === 'Receipt'")
	p.sees(id, "succeeded", "admin", "tb_task", "Not verified yet.")
	if hash := p.evaluate(
		"[...document.querySelectorAll('dd')].some(e => /^[0-9a-f]{64}$/.test(e.textContent))",
	); hash != "true" {
		t.Error("the receipt has no hash of the user id")
	}
	if n := p.number(
		"[...document.querySelectorAll('dt')].find(e => e.textContent === 'Process " +
			"instances').nextSibling.textContent.split(', ').length",
	); n != sure {
		t.Errorf("%d process instances are erased of %d", n, sure)
	}
	p.fill("User ID", "bob")
	p.press("Verify")
	p.until("it is somebody else", "document.querySelector('[role=alert]')?.textContent.includes('userId')")
	p.fill("User ID", "ann")
	p.press("Verify")
	p.sees(": Nothing found.")
	p.accessible(axe(t), "a receipt")

	// Of two people with the same id in two domains, only the chosen one is erased, and by ids only the chosen instances.
	p.open(page, "User data")
	p.fill("User ID", "bob")
	p.press("Find")
	p.sees("Select whose data to erase")
	if p.evaluate(control("Preview the erasure")+" === undefined") != "true" {
		t.Error("two people can be erased without saying which")
	}
	p.press("P100")
	p.press("Preview the erasure")
	p.until("it can be erased", erase)
	p.fill("User ID", "joanna")
	p.press("Find")
	p.until(
		"she is found",
		"document.querySelectorAll('tbody input:checked').length > 1 && !document.body.innerText.includes('Select "+
			"whose data')",
	)
	p.evaluate(one + ".click()")
	p.press("Preview the erasure")
	p.until("it can be erased", erase)
	chosen := strings.Split(
		p.evaluate(
			"[...document.querySelectorAll('tbody input:checked')].map(e => e.parentElement.textContent).join()"),
		",")
	p.press("Erase")
	p.fill("Type joanna to confirm", "joanna")
	p.press("Erase")
	p.sees("Erased: ")
	if left := forms.Int(
		fmt.Sprintf("SELECT count(*) FROM tb_process_instance WHERE id IN (%s)", strings.Join(chosen, ",")),
	); left != 0 {
		t.Errorf("%d process instances of %d are left", left, len(chosen))
	}
	p.open("#/audit", "Audit")
	p.sees("EraseUserData", "VerifyErasure")
}
