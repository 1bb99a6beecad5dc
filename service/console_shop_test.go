package service_test

import (
	"testing"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// For a database without Campaign's tables no page mentions Campaign, and none shows a problem, before the first policy
// and with one.
func TestConsoleOfAShop(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	script := axe(t)
	s := serveAs(t, shopDatabase(t), false, nil, console(t, access.Config{}))
	p := browse(t, s.url)
	p.sees("No policy is set yet")
	leads := "[...document.querySelectorAll('main a')].map(a => a.hash).join()"
	if got := p.evaluate(leads); got != "#/tables,#/policies" {
		t.Errorf("the overview leads to %s", got)
	}
	visit := func(hash, title string) {
		t.Helper()
		p.open(hash, title)
		p.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
		if found := p.evaluate(
			`document.querySelector('.problem')?.innerText ??
				document.body.innerText.match(/campaign|recipient|deliver|\bidle\b|process instance|retention/i)`,
		); found != "null" {
			t.Errorf("%s says %q", hash, found)
		}
		p.accessible(script, hash)
	}
	visitAll := func() {
		t.Helper()
		for _, page := range pages {
			if page.title != "Retention" {
				visit(page.hash, page.title)
			}
		}
	}
	visitAll()
	p.evaluate("location.hash = '#/retention'")
	p.sees("Page not found.")

	setPolicy(t, s, oldOrders())
	visitAll()
	p.open("#/preview", "Preview")
	p.press("Start the preview")
	p.sees("What a run would delete")
	visit(p.evaluate("location.hash"), "Dry run")
	visit("#/explain/shop.order_line/1", "Explain")
	visit("#/explain//policy%2Fold-orders", "Explain")
	visitAll()
}

// Saving the guards keeps those that the page does not show.
func TestConsoleKeepsGuardsOfCampaign(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := serveAs(t, shopDatabase(t), false, nil, console(t, access.Config{}))
	if _, err := s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{
		Guards: &cleanupv1.Guards{MinProcessInstances: new(int64(7))}, UpdateMask: mask("min_process_instances"),
	}); err != nil {
		t.Fatal(err)
	}
	p := browse(t, s.url)
	p.open("#/guards", "Guards")
	p.fill("Minimum number of rows", "10")
	p.press("Save")
	p.until("it is saved", `fetch('/v1/guards').then(r => r.json()).then(({guards}) =>
		guards.minRows === '10' && guards.minProcessInstances === '7')`)
}

// The page for process instances of AEM Forms is shown without Campaign, too.
func TestConsoleOfFormsAlone(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s, _, _ := formsServerOf(t, shopDatabase(t), console(t, access.Config{TokenFile: tokenFile(t)}))
	for _, role := range []access.Role{access.Viewer, access.Admin} {
		p := browse(t, s.url)
		p.fill("Token", "secret-"+role.String())
		p.press("Sign in")
		p.sees("No policy is set yet")
		if role != access.Admin {
			p.evaluate("location.hash = '#/retention'")
			p.sees("Page not found.")
			continue
		}
		p.open("#/retention", "Retention")
		p.sees("No rules.")
		if found := p.evaluate("document.querySelector('.problem')?.innerText"); found != "undefined" {
			t.Errorf("the rules are shown with %q", found)
		}
		p.open("#/guards", "Guards")
		p.sees("Minimum number of process instances")
	}
}
