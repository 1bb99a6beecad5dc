package plan

import (
	"fmt"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// compileDrop adds a kind of work tables, unless, with a note, it is not known which of them are in use.
func compileDrop(p *Plan, kind WorkTables, env Env) {
	if env.Catalog.Table("NmsDelivery") == nil {
		p.note(severity.Warning, "table NmsDelivery is missing, whose owner tells the application's tables: skipped")
		return
	}
	c := compiler{Env: env, plan: p}
	d := Drop{WorkTables: kind, Owner: c.trustedParent(kind.Owner, kind.Key)}
	if d.Owner == nil {
		return
	}
	owner := row{"o", d.Owner}
	if !(&compiler{Env: env, plan: p, table: d.Owner}).applies(kind.InUse, owner) {
		return
	}
	d.Rule = Rules{kind.InUse}.describe(env)
	d.InUse, d.HasOwners = idQuery(p, env, d.Owner, kind.Key, kind.InUse), existsQuery(p, env, d.Owner)
	if kind.Lists {
		d.Groups = env.Catalog.Table("NmsGroup")
		c.needsRights(d.Groups, "SELECT")
		switch {
		case d.Groups == nil:
			p.note(severity.Info, "table NmsGroup is missing: tables with _grp and an id in their names stay")
		case d.Groups.RowSecurity:
			p.note(
				severity.Warning,
				"row security may hide rows of %s: tables with _grp and an id in their names stay",
				d.Groups.Name,
			)
			d.Groups = nil
		default:
			d.KnownLists, d.HasLists = idQuery(p, env, d.Groups, "iGroupId", nil), existsQuery(p, env, d.Groups)
		}
	}
	p.Drops = append(p.Drops, d)
}

// idQuery is a query for those of some ids ($1) that a table has, in rows of which a rule is true.
func idQuery(p *Plan, env Env, t *campaign.Table, key string, that Rule) Query {
	c := compiler{Env: env, plan: p, table: t, args: []any{nil}}
	q := Query{
		SQL: fmt.Sprintf(
			"SELECT o.%[2]s::bigint FROM %[1]s AS o WHERE o.%[2]s = ANY ($1::bigint[]) AND o.%[2]s <> 0",
			c.afterPredecessors(t),
			key,
		),
	}
	if rule, _ := c.allParts(that, row{"o", t}); rule != "" {
		q.SQL += " AND " + rule
	}
	q.Args = c.args[1:]
	return q
}

// existsQuery is a query for whether a table has any row.
func existsQuery(p *Plan, env Env, t *campaign.Table) Query {
	c := compiler{Env: env, plan: p, table: t}
	return Query{SQL: "SELECT EXISTS (SELECT FROM " + c.afterPredecessors(t) + " AS o)", Args: c.args}
}
