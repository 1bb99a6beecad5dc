package plan

import (
	"fmt"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// drop adds a kind of work tables, unless, with a note, it is not known which of them are in use.
func drop(p *Plan, kind WorkTables, g Given) {
	if g.Catalog.Table("NmsDelivery") == nil {
		p.note(severity.Warning, "table NmsDelivery is missing, whose owner tells the application's tables: skipped")
		return
	}
	c := compiler{Given: g, plan: p}
	d := Drop{WorkTables: kind, Owner: c.parent(kind.Owner, kind.Key)}
	if d.Owner == nil {
		return
	}
	c.table = d.Owner
	owner := row{"o", d.Owner}
	if !c.there(kind.InUse, owner) {
		return
	}
	d.InUse = fmt.Sprintf("SELECT o.%[2]s::bigint FROM %[1]s AS o WHERE o.%[2]s = ANY ($1::bigint[]) AND o.%[2]s <> 0", d.Owner.Quoted(), kind.Key)
	if inUse, _ := c.all(kind.InUse, owner); inUse != "" {
		d.InUse += " AND " + inUse
	}
	if kind.Lists {
		d.Groups = g.Catalog.Table("NmsGroup")
		c.needsRights(d.Groups, "SELECT")
		switch {
		case d.Groups == nil:
			p.note(severity.Info, "table NmsGroup is missing: tables with _grp and an id in their names stay")
		case d.Groups.RowSecurity:
			p.note(severity.Warning, "row security may hide rows of %s: tables with _grp and an id in their names stay", d.Groups.Name)
			d.Groups = nil
		}
	}
	p.Drops = append(p.Drops, d)
}
