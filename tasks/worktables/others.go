package worktables

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// reason is why relations with the names of work tables are not dropped, and what helps.
type reason struct {
	text, remedy string
	// retained is true if unused ones count as retained.
	retained bool
}

// others logs which relations have the names of work tables of a kind and are not dropped because of their owner, kind
// or schema. It returns how many unused ones of the application's schema there are.
func (f Finder) others(ctx context.Context, k Kind) (retained int64, err error) {
	catalog := f.Binder.Env.Catalog
	others, owner, err := catalog.OtherWorkTables(ctx, f.Binder.Pool, k.Drop.Prefix, k.Drop.Bare)
	if err != nil {
		return 0, err
	}
	var reasons []reason
	tables := map[reason][]campaign.WorkTable{}
	for _, o := range others {
		r := reasonFor(o, catalog.Schema, owner)
		if !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
		tables[r] = append(tables[r], o.WorkTable)
	}
	for _, r := range reasons {
		found, use, level := tables[r], "", severity.Info
		if r.retained {
			if found, err = k.Unused(ctx, f.Binder.Pool, found); err != nil {
				return 0, err
			}
			retained += int64(len(found))
			use, level = ", not in use", severity.Warning
		}
		if len(found) == 0 {
			continue
		}
		f.Log(ctx, level, fmt.Sprintf(
			"left alone: %d with names of work tables%s, such as %s: %s; %s",
			len(found), use, found[0].Quoted(), r.text, r.remedy,
		))
	}
	return retained, nil
}

// reasonFor returns why a relation is not dropped, in a database with the application's schema and its tables' owner.
func reasonFor(o campaign.OtherWorkTable, schema, owner string) reason {
	switch {
	case o.Schema != schema:
		return reason{
			text:   "in the schema " + o.Schema + ", and NmsDelivery is in " + schema,
			remedy: "drop the unneeded ones there by hand",
		}
	case o.Kind != "":
		return reason{text: o.Kind, remedy: "drop the unneeded ones by hand"}
	case owner == "postgres":
		return reason{
			"of the superuser postgres, as NmsDelivery is",
			"give the application's tables to a role of its own: ALTER TABLE … OWNER TO",
			true,
		}
	}
	return reason{
		"of " + o.Owner + ", and NmsDelivery is of " + owner,
		"ALTER TABLE … OWNER TO " + pgx.Identifier{owner}.Sanitize() + " lets the next run drop them",
		true,
	}
}
