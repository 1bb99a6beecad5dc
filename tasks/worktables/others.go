package worktables

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// others logs which relations have names of work tables of a kind, but are not dropped because of their owner, kind
// or schema. It returns how many of them in the application's schema are unused.
func (f Finder) others(ctx context.Context, k Kind) (retained int64, err error) {
	catalog := f.Binder.Env.Catalog
	others, owner, err := catalog.OtherWorkTables(ctx, f.Binder.Pool, k.Drop.Prefix, k.Drop.Bare)
	if err != nil {
		return 0, err
	}
	var groups []group
	tables := map[group][]campaign.WorkTable{}
	for _, o := range others {
		g := groupOf(o, catalog.Schema, owner)
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
		tables[g] = append(tables[g], o.WorkTable)
	}
	for _, g := range groups {
		found := tables[g]
		if g.owner != "" {
			if found, err = k.Unused(ctx, f.Binder.Pool, found); err != nil {
				return 0, err
			}
			retained += int64(len(found))
		}
		if len(found) > 0 {
			f.Log(ctx, g.message(len(found), found[0].Quoted(), catalog.Schema, owner))
		}
	}
	return retained, nil
}

// group is why relations are not dropped: their schema, kind or owner.
type group struct {
	schema, kind, owner string
}

func groupOf(o campaign.OtherWorkTable, schema, owner string) group {
	switch {
	case o.Schema != schema:
		return group{schema: o.Schema}
	case o.Kind != "":
		return group{kind: o.Kind}
	case owner == "postgres":
		return group{owner: owner}
	}
	return group{owner: o.Owner}
}

// message returns the message about the relations of a group. schema and owner are the application's.
func (g group) message(number int, example, schema, owner string) message.Message {
	switch {
	case g.schema != "":
		return message.WorkTablesElsewhere.With("tables", number, "example", example, "schema", g.schema,
			"application", schema)
	case g.kind != "":
		return message.WorkTablesOfOtherKind.With("tables", number, "example", example, "kind", g.kind)
	case owner == "postgres":
		return message.WorkTablesOfSuperuser.With("tables", number, "example", example)
	}
	return message.WorkTablesOfOthers.With("tables", number, "example", example, "owner", g.owner, "application", owner,
		"statement", "ALTER TABLE … OWNER TO "+pgx.Identifier{owner}.Sanitize())
}
