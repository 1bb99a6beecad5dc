package rules_test

import (
	"maps"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// Cutoffs has one time for each option that rules read, and the reference time for rules without an option.
func TestCutoffs(t *testing.T) {
	t.Parallel()
	const broadLog = "NmsCleanup_BroadLogPurgeDelay"
	env := rules.Env{Options: &campaign.Options{}, Now: now}
	cutoff := now.Add(-180 * campaign.Day)
	for name, c := range map[string]struct {
		rule rules.Rule
		want map[string]time.Time
	}{
		"no date":        {rules.Rule{rules.Is("iState", 1)}, map[string]time.Time{}},
		"reference time": {rules.Rule{rules.Past("tsLog")}, map[string]time.Time{"": now}},
		"a delay": {
			rules.Rule{rules.Older("tsLog", campaign.BroadLogPurge)},
			map[string]time.Time{broadLog: cutoff},
		},
		"a delay of a linked row": {
			rules.Rule{rules.Linked{That: rules.Rule{rules.Older("tsLog", campaign.BroadLogPurge)}}},
			map[string]time.Time{broadLog: cutoff},
		},
		"SQL": {rules.Rule{rules.SQL{Text: "r.tsLog < {now}"}}, map[string]time.Time{"": now}},
	} {
		ofSteps := rules.Task{Steps: []rules.Step{{Rules: rules.Rules{c.rule}}}}
		if got := ofSteps.Cutoffs(env); !maps.Equal(got, c.want) {
			t.Errorf("%s of a step: %v, not %v", name, got, c.want)
		}
		ofParents := rules.Task{ParentRule: &rules.ParentRule{Rules: rules.Rules{c.rule}}}
		if got := ofParents.Cutoffs(env); !maps.Equal(got, c.want) {
			t.Errorf("%s of parents: %v, not %v", name, got, c.want)
		}
	}
}

// A given earlier cutoff replaces the one of the delay.
func TestEarlierCutoffs(t *testing.T) {
	t.Parallel()
	earlier := map[string]time.Time{campaign.BroadLogPurge.Name: now.Add(-time.Hour)}
	task := rules.Task{Steps: []rules.Step{{Rules: rules.Rules{{rules.Older("tsLog", campaign.BroadLogPurge)}}}}}
	if got := task.Cutoffs(rules.Env{Now: now, Earlier: earlier}); !maps.Equal(got, earlier) {
		t.Errorf("%v, not %v", got, earlier)
	}
}

// WithoutDelays leaves out rules that depend on the reference time, and steps that only have such rules.
func TestWithoutDelays(t *testing.T) {
	t.Parallel()
	timed, untimed := rules.Rule{rules.Past("tsLog")}, rules.Rule{rules.Is("iState", 1)}
	for name, c := range map[string]struct {
		parents, step rules.Rules
		link          string
		hasParents    bool
		rules         []int // the number of rules of each remaining step
	}{
		"a rule with a date":        {step: rules.Rules{timed}},
		"a rule without a date":     {step: rules.Rules{untimed}, rules: []int{1}},
		"one rule of each kind":     {step: rules.Rules{timed, untimed}, rules: []int{1}},
		"no rules":                  {rules: []int{0}},
		"parents by date":           {parents: rules.Rules{timed}, link: "iDeliveryId"},
		"parents by date, any rows": {parents: rules.Rules{timed}, rules: []int{0}},
		"parents without a date":    {parents: rules.Rules{untimed}, link: "iId", hasParents: true, rules: []int{0}},
		"parents without, rows with dates": {parents: rules.Rules{
			untimed,
		}, step: rules.Rules{timed}, link: "iId", hasParents: true},
	} {
		task := rules.Task{Steps: []rules.Step{{Rules: c.step, Link: c.link}}}
		if c.parents != nil {
			task.ParentRule = &rules.ParentRule{Rules: c.parents}
		}
		rest := task.WithoutDelays()
		if (rest.ParentRule != nil) != c.hasParents {
			t.Errorf("%s: parents %v", name, rest.ParentRule)
		}
		if len(rest.Steps) != len(c.rules) {
			t.Errorf("%s: %d steps, not %d", name, len(rest.Steps), len(c.rules))
			continue
		}
		for i, rules := range c.rules {
			if got := len(rest.Steps[i].Rules); got != rules {
				t.Errorf("%s: %d rules, not %d", name, got, rules)
			}
		}
	}
}
