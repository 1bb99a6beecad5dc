package service_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// A policy is made with a form, which says at its fields what is wrong with them, and is previewed.
func TestConsoleCreatesAPolicy(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	script := axe(t)
	s := serveAs(t, shopDatabase(t), false, nil, console(t, access.Config{}))
	p := browse(t, s.url)
	p.open("#/policies", "Policies")
	p.press("Create a policy")
	p.fill("Table", "shop.login")
	p.shows("Date column", "At")
	p.shows("Name", "shop-login")
	p.fill("Table", "shop.order_line")
	p.shows("Date column", "placed")
	p.shows("Name", "shop-order-line")
	p.fill("Older than", "24856")
	p.fill("Most rows of a statement", "1000001")
	p.press("Save")
	for _, label := range []string{"Older than", "Most rows of a statement"} {
		p.until("it says what is wrong with "+label, field(label)+
			".closest('label').querySelector('[role=alert]') !== null && "+field(label)+".ariaInvalid === 'true'")
	}
	if p.evaluate("document.querySelector('.problem')") != "null" {
		t.Error("it says the same once more")
	}
	p.accessible(script, "the form with mistakes")
	p.fill("Older than", "48")
	p.fill("Unit", "hours")
	p.fill("Most rows of a statement", "")
	p.fill("Undo, in hours", "36")
	p.sees("What is deleted waits in the trash for 1 day 12 hr, and can be restored.")
	p.fill("Name", "recent-orders")
	p.press("Check")
	p.sees("The server accepts the policy.")
	if n := s.db.Int("SELECT count(*) FROM cleanupd.policy"); n != 0 {
		t.Errorf("checking has stored %d policies", n)
	}
	p.press("Save")
	p.sees("The policy is saved.")
	p.accessible(script, "the form with a saved policy")
	got, err := s.GetPolicy(t.Context(), &cleanupv1.GetPolicyRequest{Name: "recent-orders"})
	if err != nil {
		t.Fatal(err)
	}
	if older := got.GetPolicy().GetOlderThan(); got.GetPolicy().GetTable() != "shop.order_line" ||
		older.GetColumn() != "placed" || older.GetHours() != 48 || got.GetPolicy().GetEnabled() ||
		got.GetPolicy().GetUndo().AsDuration() != 36*time.Hour {
		t.Errorf("the policy is %v", got)
	}
	p.press("Preview the rule")
	p.sees("What a run would delete", "policy/recent-orders", "990 rows to delete", "The trash would need")

	// a new policy does not silently replace an existing one
	p.open("#/policies//shop.login", "Create a policy")
	p.fill("Name", "recent-orders")
	p.sees("There is a policy of this name already.")
	if p.evaluate(control("Save")) != "undefined" {
		t.Error("a new policy can replace another one")
	}
}

// Changing a policy in the form keeps the parts for which the form has no fields, also after its JSON was shown.
func TestConsoleChangesAPolicy(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := serveAs(t, shopDatabase(t), false, nil, console(t, access.Config{}))
	before := oldOrders()
	before.Table = "shop.order_line"
	before.KeepNewest = &cleanupv1.KeepNewest{Per: []string{"customer"}, Count: 3}
	before.Assign = []*cleanupv1.Assign{{Column: "note"}}
	before = setPolicy(t, s, before)
	stored := func() *cleanupv1.Policy {
		t.Helper()
		got, err := s.GetPolicy(t.Context(), &cleanupv1.GetPolicyRequest{Name: before.GetName()})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetPolicy()
	}
	p := browse(t, s.url)
	p.open("#/policies", "Policies")
	p.press("Edit")
	p.shows("Older than", "730")
	p.sees("Further parts of the policy", `"FILTER_OP_EQUAL"`, `"keepNewest"`)
	p.fill("Older than", "731")
	p.press("As JSON")
	p.until("the JSON has the change", field("Rule, as JSON")+"?.value.includes('731')")
	p.press("As JSON")
	p.fill("Description", "Old orders")
	p.press("Save")
	p.sees("The policy is saved.")
	want := proto.CloneOf(before)
	want.OlderThan, want.Description, want.Etag = olderThan("placed", 731), "Old orders", stored().GetEtag()
	if got := stored(); !proto.Equal(got, want) {
		t.Errorf("it is %v, want %v", got, want)
	}

	p.press("As JSON")
	p.fill("Rule, as JSON", "{")
	p.press("As JSON")
	p.until("it says what is wrong", "document.querySelector('.problem') !== null")
	p.fill("Rule, as JSON", `{"table": "shop.login", "olderThan": {"column": "At", "hours": 5}}`)
	p.press("As JSON")
	p.shows("Table", "shop.login")
	p.shows("Unit", "hours")
	want.Description = "Older orders"
	setPolicy(t, s, want)
	p.press("Save")
	p.sees("Another user has changed these settings")
	p.press("Try again")
	p.shows("Table", "shop.order_line")
}
