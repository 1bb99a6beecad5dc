package rules

import (
	"regexp"
	"slices"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Selector returns the tables of a step, and adds notes about missing tables. It fails if it needs the delivery
// mappings, which name logs, and they could not be read.
type Selector func(env Env, p *Plan) ([]*campaign.Table, error)

func Table(name string) Selector { return Tables(name) }

func Tables(names ...string) Selector {
	return func(env Env, p *Plan) (found []*campaign.Table, err error) {
		for _, name := range names {
			if t := env.Catalog.Table(name); t != nil {
				found = append(found, t)
			} else if !p.skipInPlaceOf(name, env.Catalog) {
				p.notef("table %s is missing: skipped", name)
			}
		}
		return found, nil
	}
}

// Matching selects tables by a pattern of their stored names and by their features. what is their plural noun for
// notes.
func Matching(what string, pattern *regexp.Regexp, hasFeatures func(t *campaign.Table) bool) Selector {
	return func(env Env, p *Plan) ([]*campaign.Table, error) {
		matches := func(t *campaign.Table) bool { return pattern.MatchString(t.Name) && hasFeatures(t) }
		for _, t := range env.Catalog.InPlaceOfTables(matches) {
			p.skipInPlaceOf(t.Name, env.Catalog)
		}
		found := env.Catalog.Tables(matches)
		if found == nil {
			p.notef("there are no %s: skipped", what)
		}
		return found, nil
	}
}

// Only selects the tables of one kind. The other tables do not count as skipped.
func Only(all Selector, kind func(t *campaign.Table) bool) Selector {
	return func(env Env, p *Plan) ([]*campaign.Table, error) {
		isOther := func(t *campaign.Table) bool { return !kind(t) }
		before := len(p.SkippedTables)
		found, err := all(env, p)
		p.SkippedTables = append(p.SkippedTables[:before], slices.DeleteFunc(p.SkippedTables[before:], isOther)...)
		return slices.DeleteFunc(found, isOther), err
	}
}

// skipInPlaceOf reports whether a view or partition has the name of a table. If so, it notes that the table is skipped.
func (p *Plan) skipInPlaceOf(name string, c *campaign.Catalog) bool {
	t := c.InPlaceOf(name)
	if t == nil {
		return false
	}
	p.Skip(t, message.NotATable.With("table", name, "kind", t.Kind))
	return true
}

// LinkedToLists selects tables whose column iGroupId is the id of a list: the table of members, and tables with a
// foreign key to lists. Other tables are left out, because the column may have another meaning, as in
// XtkOperatorGroup.
func LinkedToLists(env Env, p *Plan) ([]*campaign.Table, error) {
	found, _ := Table("NmsRcpGrpRel")(env, p)
	return append(found, env.Catalog.Tables(func(t *campaign.Table) bool { return t.OfLists })...), nil
}

func DeliveryAndExclusionLogs(env Env, p *Plan) ([]*campaign.Table, error) {
	return selectLogs(env, p, env.Catalog.DeliveryLogs, env.Catalog.ExclusionLogs)
}

func DeliveryLogs(env Env, p *Plan) ([]*campaign.Table, error) {
	return selectLogs(env, p, env.Catalog.DeliveryLogs)
}

func TrackingLogs(env Env, p *Plan) ([]*campaign.Table, error) {
	return selectLogs(env, p, env.Catalog.TrackingLogs)
}

// selectLogs returns the logs that the listers find, each table once, and notes what they left out.
func selectLogs(env Env, p *Plan, listers ...func() (campaign.Logs, error)) (found []*campaign.Table, err error) {
	if !p.requireMappings(env) {
		return nil, nil
	}
	for _, list := range listers {
		logs, err := list()
		if err != nil {
			return nil, err
		}
		for _, m := range logs.Notes {
			p.note(m)
		}
		p.SkippedTables = append(p.SkippedTables, logs.Unfit...)
		for _, t := range logs.Tables {
			if !slices.Contains(found, t) {
				found = append(found, t)
			}
		}
	}
	return found, nil
}

// requireMappings reports whether the role can read the delivery mappings, or there are none. It notes the missing
// right.
func (p *Plan) requireMappings(env Env) bool {
	mapping := env.Catalog.Table("NmsDeliveryMapping")
	p.requireRights(env, mapping, "SELECT")
	return mapping == nil || mapping.CanSelect
}

// Family is a kind of table that exists any number of times, since customers can add their own.
type Family struct {
	// Select returns the tables that the task cleans.
	Select Selector
	// Matches reports whether a table has the features of the family.
	Matches func(t *campaign.Table) bool
	// Noun and Criterion are for messages. Criterion says why the task does not clean such a table.
	Noun, Criterion string
	// Column is the date from which a row's age counts.
	Column string
}

// Tables is a Selector. It adds a note for each table that matches the family but that the task does not clean.
func (f Family) Tables(env Env, p *Plan) ([]*campaign.Table, error) {
	found, err := f.Select(env, p)
	if err != nil {
		return nil, err
	}
	for _, t := range env.Catalog.Tables(f.Matches) {
		if !slices.Contains(found, t) && t.Has(f.Column) && !campaign.LooksLikeWorkTable(t.Name) {
			p.note(message.TableLooksAlike.With(
				"table", t.Name, "kind", f.Noun, "criterion", f.Criterion, "column", f.Column,
			))
		}
	}
	return found, nil
}
