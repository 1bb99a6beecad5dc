package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// part is a part of a rule, with the field of the policy from which it comes.
type part struct {
	field string
	rules.Part
}

func (p Policy) Task() rules.Task {
	var rule rules.Rule
	for _, part := range p.parts() {
		rule = append(rule, part.Part)
	}
	does := "Deletes rows"
	switch {
	case len(p.Assign) > 0:
		does = "Changes rows"
	case p.Partitions == purge.DetachPartitions:
		does = "Detaches partitions"
	}
	return rules.Task{
		Name:        p.TaskName(),
		Kind:        rules.Policy,
		Title:       p.title(),
		Description: fmt.Sprintf("%s of %s by a policy of this installation.", does, p.Table),
		Names:       p.names(),
		Basis:       p.Basis(),
		Revision:    p.Revision,
		Disabled:    !p.Enabled,
		Undo:        p.Undo,
		Steps: []rules.Step{{
			On:         p.tables,
			Rules:      rules.Rules{rule},
			Update:     p.assignments(),
			Limit:      p.Limit,
			Partitions: p.Partitions,
		}},
	}
}

// parts returns the parts of the policy's rule. Cheap ones come first.
func (p Policy) parts() (parts []part) {
	add := func(field string, of rules.Part) { parts = append(parts, part{field, of}) }
	if a := p.OlderThan; a != nil {
		age := rules.Past(a.Column)
		if a.Hours != nil {
			age = age.ByHours(*a.Hours)
		} else {
			age = age.By(time.Duration(*a.Days) * campaign.Day)
		}
		add("older_than", age)
		if p.Partitions == purge.DetachPartitions {
			add("partitions", rules.InWholePartition(age))
		}
	}
	for i, f := range p.Filters {
		add(fmt.Sprintf("filters[%d]", i), rules.Filter{Column: f.Column, Op: ops[f.Op], Values: f.Values})
	}
	if p.Assign != nil {
		add("assign", rules.Differs{From: p.assignments()})
	}
	if o := p.OrphanOf; o != nil {
		add("orphan_of", rules.Orphan{Column: o.Column, Parent: p.parentName(), Key: o.ParentColumn})
	}
	if p.Unreferenced {
		add("unreferenced", rules.Unreferenced{})
	}
	if k := p.KeepNewest; k != nil {
		add("keep_newest", rules.Newest{Per: k.Per, OrderBy: p.orderBy(), Count: k.Count})
	}
	return parts
}

func (p Policy) assignments() (assignments []rules.Assignment) {
	for _, a := range p.Assign {
		var value rules.Value = rules.Text{Value: a.Value}
		if a.ValueFromKey != "" {
			value = rules.FromKey(a.ValueFromKey)
		}
		assignments = append(assignments, rules.Assignment{Column: a.Column, Value: value})
	}
	return assignments
}

// tables returns the policy's table. It returns none if the table no longer exists, if no policy may change it, or if
// the policy can no longer be applied to it. It fails if the name means a different table than when the policy was set.
func (p Policy) tables(env rules.Env, in *rules.Plan) ([]*campaign.Table, error) {
	if err := p.requireSame(env.Catalog); err != nil {
		return nil, err
	}
	c := &checker{Policy: p, env: env}
	t := c.find("policy.table", p.TableName())
	if t == nil { // the table was dropped, renamed or moved; it counts as skipped, since it may still have rows
		in.Skip(&campaign.Table{Name: p.Table}, Unusable(c.wrong.Err()))
		return nil, nil
	}
	if why := protected(env.Catalog, t, p.Assign == nil); why != "" {
		in.Skip(t, message.PolicyTableProtected.With("table", t.Quoted(), "problem", why))
		return nil, nil
	}
	if why := p.usable(env, t); why != nil {
		in.Skip(t, Unusable(why))
		return nil, nil
	}
	return []*campaign.Table{t}, nil
}

var underscored = regexp.MustCompile(`_[a-z]`)

// Unusable is the message that a policy cannot run. It names fields as files of policies do.
func Unusable(why error) message.Message {
	var wrong failure.Violations
	if errors.As(why, &wrong) {
		named := failure.Violations{}
		for _, v := range wrong {
			field := underscored.ReplaceAllStringFunc(strings.TrimPrefix(v.Field, "policy."),
				func(part string) string { return strings.ToUpper(part[1:]) })
			named.Add(field, v.Problem)
		}
		why = named.Err()
	}
	return message.PolicyUnusable.With("problem", why)
}
