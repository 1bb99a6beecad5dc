package tasks

import (
	"context"
	"regexp"
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Selector returns the tables of a step, and notes which are missing.
type Selector func(ctx context.Context, e *Env, p *plan) ([]*campaign.Table, error)

// table selects one table by its name.
func table(name string) Selector {
	return func(_ context.Context, e *Env, p *plan) ([]*campaign.Table, error) {
		t := e.Catalog.Table(name)
		if t == nil {
			p.note(Info, "table %s is missing: skipped", name)
			return nil, nil
		}
		return []*campaign.Table{t}, nil
	}
}

// tables selects several tables by their names.
func tables(names ...string) Selector {
	return func(ctx context.Context, e *Env, p *plan) ([]*campaign.Table, error) {
		var found []*campaign.Table
		for _, name := range names {
			one, _ := table(name)(ctx, e, p)
			found = append(found, one...)
		}
		return found, nil
	}
}

// matching selects the tables of a family that is listed nowhere, by their stored names, if they look like it. what names them
// for people.
func matching(what string, pattern *regexp.Regexp, looks func(t *campaign.Table) bool) Selector {
	return func(_ context.Context, e *Env, p *plan) ([]*campaign.Table, error) {
		found := e.Catalog.Tables(func(t *campaign.Table) bool { return pattern.MatchString(t.Name) && looks(t) })
		if found == nil {
			p.note(Info, "there are no %s: skipped", what)
		}
		return found, nil
	}
}

// only selects those of the tables that are of a kind.
func only(all Selector, kind func(t *campaign.Table) bool) Selector {
	return func(ctx context.Context, e *Env, p *plan) ([]*campaign.Table, error) {
		found, err := all(ctx, e, p)
		return slices.DeleteFunc(found, func(t *campaign.Table) bool { return !kind(t) }), err
	}
}

// deliveryAndExclusionLogs selects the delivery-log and exclusion-log tables, each once.
func deliveryAndExclusionLogs(ctx context.Context, e *Env, p *plan) ([]*campaign.Table, error) {
	return logs(ctx, e, p, e.Catalog.DeliveryLogs, e.Catalog.ExclusionLogs)
}

// deliveryLogTables selects the delivery-log tables.
func deliveryLogTables(ctx context.Context, e *Env, p *plan) ([]*campaign.Table, error) {
	return logs(ctx, e, p, e.Catalog.DeliveryLogs)
}

// trackingLogTables selects the tracking-log tables.
func trackingLogTables(ctx context.Context, e *Env, p *plan) ([]*campaign.Table, error) {
	return logs(ctx, e, p, e.Catalog.TrackingLogs)
}

type logLister func(context.Context, campaign.Querier) ([]*campaign.Table, []string, error)

func logs(ctx context.Context, e *Env, p *plan, listers ...logLister) ([]*campaign.Table, error) {
	if mapping := e.Catalog.Table("NmsDeliveryMapping"); mapping != nil && !mapping.CanSelect {
		e.needs(p, mapping, "SELECT")
		return nil, nil
	}
	var found []*campaign.Table
	seen := map[uint32]bool{}
	for _, list := range listers {
		tables, notes, err := list(ctx, e.Pool)
		if err != nil {
			return nil, err
		}
		for _, text := range notes {
			p.note(Warning, "%s", text)
		}
		for _, t := range tables {
			if !seen[t.OID] {
				seen[t.OID] = true
				found = append(found, t)
			}
		}
	}
	return found, nil
}
