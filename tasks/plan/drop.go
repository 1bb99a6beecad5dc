package plan

import (
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// compileDrop compiles dropping a kind of work tables. If the database cannot show which of them are in use, it
// only notes why.
func compileDrop(p *Plan, kind WorkTables, env Env) {
	if env.Catalog.Table("NmsDelivery") == nil {
		p.note(message.DeliveriesMissing.With())
		return
	}
	c := compiler{env: env, plan: p}
	d := Drop{WorkTables: kind, Owner: c.trustedParent(kind.Owner, kind.Key)}
	if d.Owner == nil {
		return
	}
	c.table = d.Owner
	if !c.applies(kind.InUse, row{"o", d.Owner}) {
		return
	}
	d.Rule = Rules{kind.InUse}.describe(env)
	d.InUse, d.HasOwners = idQuery(p, env, d.Owner, kind.Key, kind.InUse), existsQuery(p, env, d.Owner)
	if kind.Lists {
		d.Groups = env.Catalog.Table("NmsGroup")
		p.requireRights(env, d.Groups, "SELECT")
		switch {
		case d.Groups == nil:
			p.notef("table NmsGroup is missing: tables with _grp and an id in their names are retained")
		case d.Groups.RowSecurity:
			p.note(message.ListsHidden.With("table", d.Groups.Name))
			d.Groups = nil
		default:
			d.KnownLists, d.HasLists = idQuery(p, env, d.Groups, "iGroupId", nil), existsQuery(p, env, d.Groups)
		}
	}
	p.Drops = append(p.Drops, d)
}

// idQuery returns a query for those ids among IDs that are keys of rows which the rule matches.
func idQuery(p *Plan, env Env, t *campaign.Table, key string, rule Rule) sqlexpr.Expr {
	c := compiler{env: env, plan: p, table: t}
	known := sqlexpr.Format("SELECT o.%[2]s::bigint FROM %[1]s AS o WHERE o.%[2]s = ANY (%[3]s) AND o.%[2]s <> 0",
		c.afterPredecessors(t), key, sqlexpr.Arg(IDs{}, "bigint[]"))
	matches, _ := c.allParts(rule, row{"o", t})
	return sqlexpr.Join(" AND ", known, matches)
}

func existsQuery(p *Plan, env Env, t *campaign.Table) sqlexpr.Expr {
	c := compiler{env: env, plan: p, table: t}
	return sqlexpr.Format("SELECT EXISTS (SELECT FROM %s AS o)", c.afterPredecessors(t))
}
