package execute

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// reportOthers logs which relations have the names of work tables of a kind and are not dropped because of their owner,
// kind or schema. Those in the application's schema that are not in use count as left.
func (t *task) reportOthers(ctx context.Context, d plan.Drop, ask question) error {
	others, owner, err := t.given.Catalog.OtherWorkTables(ctx, t.Pool, d.Prefix, d.Bare)
	if err != nil {
		return err
	}
	type reason struct {
		text, remedy string
		left         bool
	}
	var reasons []reason
	tables := map[reason][]campaign.WorkTable{}
	for _, o := range others {
		r := reason{left: true}
		switch {
		case o.Schema != t.given.Catalog.Schema:
			r = reason{
				text:   "in the schema " + o.Schema + ", and NmsDelivery is in " + t.given.Catalog.Schema,
				remedy: "drop what nobody needs there by hand",
			}
		case o.Kind != "":
			r = reason{text: o.Kind, remedy: "drop what nobody needs by hand"}
		case owner == "postgres":
			r.text, r.remedy = "of the superuser postgres, as NmsDelivery is", "give the application's tables to a "+
				"role of its own: ALTER TABLE … OWNER TO"
		default:
			r.text, r.remedy = "of "+o.Owner+", and NmsDelivery is of "+owner, "ALTER TABLE … OWNER TO "+pgx.Identifier{
				owner,
			}.Sanitize()+" lets the next run drop them"
		}
		if !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
		tables[r] = append(tables[r], o.WorkTable)
	}
	for _, r := range reasons {
		found, use, level := tables[r], "", severity.Info
		if r.left {
			if found, err = ask(ctx, t.Pool, found); err != nil {
				return err
			}
			t.left.Tables += int64(len(found))
			use, level = ", not in use", severity.Warning
		}
		if len(found) > 0 {
			t.log(
				ctx,
				level,
				fmt.Sprintf(
					"left alone: %d with names of work tables%s, such as %s: %s; %s",
					len(found),
					use,
					found[0].Quoted(),
					r.text,
					r.remedy,
				),
			)
		}
	}
	return nil
}
