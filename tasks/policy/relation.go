package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Relation is a table of a policy, with the stored names of the columns that the policy uses.
type Relation struct {
	Schema  string   `json:"schema"`
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	// Identity distinguishes the table and its columns from others of the same names. It is taken when the policy is set
	// or read, and empty if there was no such table then.
	Identity string `json:"identity"`
}

func (r Relation) quoted() string { return pgx.Identifier{r.Schema, r.Name}.Sanitize() }

// identityOf returns the identity of the table that has the relation's name; empty if t is nil.
func (r Relation) identityOf(t *campaign.Table) string {
	if t == nil {
		return ""
	}
	identity := []string{fmt.Sprint(t.OID)}
	for _, name := range r.Columns {
		if column, ok := t.Column(name); ok {
			identity = append(identity, column.Identity)
		}
	}
	return strings.Join(identity, " ")
}

func (p Policy) Resolve(c *campaign.Catalog) Policy {
	var columns []string
	if p.OlderThan != nil {
		columns = append(columns, p.OlderThan.Column)
	}
	for _, f := range p.Filters {
		columns = append(columns, f.Column)
	}
	if p.KeepNewest != nil {
		columns = append(append(columns, p.KeepNewest.Per...), p.orderBy())
	}
	for _, a := range p.Assign {
		columns = append(columns, a.Column)
	}
	if p.OrphanOf != nil {
		columns = append(columns, p.OrphanOf.Column)
	}
	relations := []Relation{relationOf(c.Table(p.Table), columns...)}
	if o := p.OrphanOf; o != nil {
		relations = append(relations, relationOf(c.Table(o.ParentTable), o.ParentColumn))
	}
	p.Relations = relations
	return p
}

func relationOf(t *campaign.Table, columns ...string) Relation {
	r := Relation{Schema: t.Schema, Name: t.Name}
	for _, column := range columns {
		r.Columns = append(r.Columns, t.Stored(column))
	}
	slices.Sort(r.Columns)
	r.Columns = slices.Compact(r.Columns)
	r.Identity = r.identityOf(t)
	return r
}

// requireSame fails if the names of the policy's relations belong to other relations by now: the run may have begun
// long ago.
func (p Policy) requireSame(c *campaign.Catalog) error {
	for _, r := range p.Relations {
		if r.identityOf(c.Table(r.quoted())) != r.Identity {
			return failure.New(
				failure.Precondition,
				r.quoted()+" or its columns were replaced since the run began: the "+
					"policy stops here; preview it again",
			)
		}
	}
	return nil
}
