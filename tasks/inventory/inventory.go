package inventory

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

// Table is a table of the application, with its partitions, or all work tables of a kind.
type Table struct {
	// Name has the schema and is quoted where needed: shop.orders, shop."Order Lines". For work tables it is a pattern
	// for LIKE: public.wkf%.
	Name string
	// OID is 0 for work tables.
	OID          uint32
	Schema, Base string // stored names
	Kind         Kind
	Figures
	Relations []Relation
	// Members are the figures of the single work tables of a kind, by stored names.
	Members map[string]Figures
}

func (t *Table) Quoted() string { return pgx.Identifier{t.Schema, t.Base}.Sanitize() }

type Inventory struct {
	// Tables are sorted by name.
	Tables []*Table
}

type Mask struct {
	Prefix string
	Bare   bool
}

func Masks(tasks []plan.Task) (masks []Mask) {
	add := func(w plan.WorkTables) {
		if m := (Mask{w.Prefix, w.Bare}); !slices.Contains(masks, m) {
			masks = append(masks, m)
		}
	}
	for _, t := range tasks {
		for _, d := range t.Drops {
			add(d)
		}
	}
	return masks
}

// ofApplication is the name of the table by which the application's schema is recognized. Only that schema has work
// tables.
const ofApplication = "nmsdelivery"

func group(tables []named, relations []Relation, masks []Mask) *Inventory {
	schemas := map[string]bool{}
	for _, t := range tables {
		if t.Name == ofApplication && (t.Kind == "r" || t.Kind == "p") {
			schemas[t.Schema] = true
		}
	}
	byOID, byName, list := make(map[uint32]*Table, len(tables)), map[string]*Table{}, []*Table{}
	members := map[uint32]string{}
	for _, n := range tables {
		t := &Table{Name: n.Quoted, OID: n.OID, Schema: n.Schema, Base: n.Name, Kind: kinds[n.Kind]}
		if schemas[n.Schema] {
			if m, ok := maskOf(n.Name, masks); ok {
				t.Base = worktables.Mask(m.Prefix)
				t.Name = strings.TrimSuffix(n.Quoted, quotedPart(n)) + t.Base
				t.OID, t.Kind, t.Members = 0, WorkTables, map[string]Figures{}
				members[n.OID] = n.Name
			}
		}
		if known := byName[t.Name]; known != nil {
			t = known
		} else {
			byName[t.Name], list = t, append(list, t)
		}
		byOID[n.OID] = t
	}
	for _, r := range relations {
		t := byOID[r.Root]
		if t == nil { // a table that was created since the tables were listed, or a partition of a table of the service
			continue
		}
		t.Relations, t.Figures = append(t.Relations, r), t.plus(r.Figures)
		if name, ok := members[r.Root]; ok {
			t.Members[name] = t.Members[name].plus(r.Figures)
		}
	}
	slices.SortFunc(list, func(a, b *Table) int { return strings.Compare(a.Name, b.Name) })
	return &Inventory{list}
}

func maskOf(name string, masks []Mask) (Mask, bool) {
	for _, m := range masks {
		if campaign.IsWorkTableName(name, m.Prefix, m.Bare) {
			return m, true
		}
	}
	return Mask{}, false
}

// quotedPart returns the table's part, at the end of n's quoted name.
func quotedPart(n named) string {
	for _, part := range []string{n.Name, pgx.Identifier{n.Name}.Sanitize()} {
		if strings.HasSuffix(n.Quoted, "."+part) {
			return part
		}
	}
	return ""
}
