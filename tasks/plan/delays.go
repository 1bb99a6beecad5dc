package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// delays returns the delays of a rule. The zero Option stands for comparing with the reference time itself. If
// there are no delays, the rule does not depend on the reference time.
func (rule Rule) delays() (delays []campaign.Option) {
	for _, p := range rule {
		switch p := p.(type) {
		case Age:
			delays = append(delays, p.Delay)
		case Linked:
			delays = append(delays, p.That.delays()...)
		case SQL:
			if strings.Contains(p.Text, "{now}") {
				delays = append(delays, campaign.Option{})
			}
		}
	}
	return delays
}

func (t Task) allRules() (all Rules) {
	if t.ParentSet != nil {
		all = t.ParentSet.Rules
	}
	for _, s := range t.Steps {
		all = slices.Concat(all, s.Rules)
	}
	return all
}

// Cutoffs returns the cutoffs of a task by the names of their delays; the name is "" for a cutoff without a delay.
// Delays that cannot be used are left out.
func (t Task) Cutoffs(env Env) map[string]time.Time {
	cutoffs := map[string]time.Time{}
	for _, rule := range t.allRules() {
		for _, delay := range rule.delays() {
			if at, _, err := (Age{Delay: delay}).cutoff(env); err == nil {
				cutoffs[delay.Name] = at
			}
		}
	}
	return cutoffs
}

// WithoutDelays returns a task with only those rules that do not depend on the reference time, and the steps to
// which they apply.
func (t Task) WithoutDelays() Task {
	hasDelay := func(rule Rule) bool { return rule.delays() != nil }
	untimed := func(rules Rules) (rest Rules, applies bool) {
		rest = slices.DeleteFunc(slices.Clone(rules), hasDelay)
		return rest, len(rules) == 0 || len(rest) > 0
	}
	hasParents := false
	if t.ParentSet != nil {
		set := *t.ParentSet
		set.Rules, hasParents = untimed(set.Rules)
		t.ParentSet = &set
	}
	var steps []Step
	for _, s := range t.Steps {
		var applies bool
		if s.Rules, applies = untimed(s.Rules); applies && (hasParents || !s.Dependent()) {
			steps = append(steps, s)
		}
	}
	if t.Steps = steps; !hasParents {
		t.ParentSet = nil
	}
	return t
}
