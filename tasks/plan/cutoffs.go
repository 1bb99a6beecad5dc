package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// delays are the delays by which a rule goes by the run's clock: the zero value where it does without one of an option.
// None: it goes by no clock.
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

// allRules are all rules of the task.
func (t Task) allRules() (all Rules) {
	if t.ParentSet != nil {
		all = t.ParentSet.Rules
	}
	for _, s := range t.Steps {
		all = slices.Concat(all, s.Rules)
	}
	return all
}

// Cutoffs are the moments that the task's rules go by, by the names of their delays; that without a name is the run's
// clock.
func (t Task) Cutoffs(env Env) map[string]time.Time {
	moments := map[string]time.Time{}
	for _, rule := range t.allRules() {
		for _, delay := range rule.delays() {
			if at, _, err := (Age{Delay: delay}).cutoff(env); err == nil {
				moments[delay.Name] = at
			}
		}
	}
	return moments
}

// WithoutDelays is the task by those of its rules alone that go by no clock.
func (t Task) WithoutDelays() Task {
	timed := func(rule Rule) bool { return rule.delays() != nil }
	some := func(rules Rules) (rest Rules, applies bool) {
		rest = slices.DeleteFunc(slices.Clone(rules), timed)
		return rest, len(rules) == 0 || len(rest) > 0
	}
	ofSet := false
	if t.ParentSet != nil {
		set := *t.ParentSet
		set.Rules, ofSet = some(set.Rules)
		t.ParentSet = &set
	}
	var steps []Step
	for _, s := range t.Steps {
		var applies bool
		if s.Rules, applies = some(s.Rules); applies && (ofSet || !s.Dependent()) {
			steps = append(steps, s)
		}
	}
	if t.Steps = steps; !ofSet {
		t.ParentSet = nil
	}
	return t
}
