package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// HoldKind is what a hold is about.
type HoldKind string

// Kinds of holds.
const (
	HoldDeliveries HoldKind = "DELIVERIES"
	HoldLists      HoldKind = "LISTS"
	HoldWorkflows  HoldKind = "WORKFLOWS"
	HoldTable      HoldKind = "TABLE"
	HoldRecipients HoldKind = "RECIPIENTS"
	HoldEverything HoldKind = "EVERYTHING"
)

// Hold is what stays, whatever the rules say.
type Hold struct {
	ID   string
	Kind HoldKind
	// IDs are those of the rows that it is about; Table is the name of the table.
	IDs   []int64
	Table string
	// NotCovered are tables that reach its recipients otherwise than by iRecipientId.
	NotCovered  []string
	Reason      string
	CreatedBy   string
	CreateTime  time.Time
	ExpireTime  *time.Time // nil: it does not
	ReleaseTime *time.Time // nil: it was not
	ReleasedBy  string
}

// The most ids of a hold, the most ids on hold at once, and the most characters of a reason.
const (
	mostHeldIDs    = 10_000
	mostIDsOnHold  = 100_000
	mostHoldReason = 1_000
)

// checkTotal fails with InvalidError if a new hold would put too many ids on hold at once.
func (h *Hold) checkTotal(ctx context.Context, db campaign.Querier) error {
	var onHold int
	if err := db.QueryRow(
		ctx,
		"SELECT COALESCE(sum(cardinality(ids)), 0) FROM cleanupd.hold WHERE "+holdNotReleased+"clock_timestamp())",
	).
		Scan(&onHold); err != nil {
		return err
	}
	if onHold+len(h.IDs) > mostIDsOnHold {
		return failure.Field("hold", fmt.Sprintf(
			"has %d ids, and %d are on hold already: %d are the most, in all holds together; release some, or hold a "+
				"table or everything",
			len(h.IDs), onHold, mostIDsOnHold,
		))
	}
	return nil
}

// check completes a hold that is to be created, or fails with InvalidError.
func (h *Hold) check(ctx context.Context, db campaign.Querier, c *campaign.Catalog) error {
	var wrong InvalidError
	say := func(field, problem string) { wrong.Add("hold."+field, problem) }
	byID := map[HoldKind]string{
		HoldDeliveries: "deliveries.ids",
		HoldLists:      "lists.ids",
		HoldWorkflows:  "workflows.ids",
		HoldRecipients: "recipients.ids",
	}
	switch field := byID[h.Kind]; {
	case h.Kind == "":
		wrong.Add("hold", "must say what is held: deliveries, lists, workflows, table, recipients or everything")
	case field != "" && (len(h.IDs) == 0 || len(h.IDs) > mostHeldIDs):
		say(field, fmt.Sprintf("must have 1 to %d ids, not %d", mostHeldIDs, len(h.IDs)))
	case field != "" && slices.Contains(h.IDs, 0):
		say(field, "has 0, which is the id of no row")
	case h.Kind == HoldTable:
		name, problem, err := heldTable(ctx, db, c, h.Table)
		if err != nil {
			return err
		}
		if h.Table = name; problem != "" {
			say("table.name", problem)
		}
	}
	switch {
	case strings.TrimSpace(h.Reason) == "":
		say("reason", "is missing: say why, for whoever finds the hold years later")
	case strings.ContainsRune(h.Reason, 0):
		say("reason", "holds a NUL character, which no text in the database does")
	case utf8.RuneCountInString(h.Reason) > mostHoldReason:
		say("reason", fmt.Sprintf("is longer than %d characters", mostHoldReason))
	}
	var now time.Time
	if err := db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	if h.ExpireTime != nil && !h.ExpireTime.After(now) {
		say("expire_time", "must be in the future")
	}
	if wrong != nil {
		return wrong
	}
	return nil
}

// heldTable is the stored name of a table, or partition of one, and what is wrong with it; empty: nothing.
func heldTable(
	ctx context.Context,
	db campaign.Querier,
	c *campaign.Catalog,
	name string,
) (stored, problem string, err error) {
	if name == "" || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return name, "must be the name of a table", nil
	}
	var inner, materialized bool
	var beneath []string
	err = db.QueryRow(ctx, findHeld, c.Schema, name, elsewhere(c)).Scan(&stored, &inner, &materialized, &beneath)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return name, fmt.Sprintf("schema %q has no table %.64q", c.Schema, name), nil
	case inner:
		return name, "is a partition that is partitioned itself: name the table, or those partitions that have rows", err
	case beneath != nil && (materialized || !dropped(stored)):
		return name, "is a view, of which a hold keeps nothing: name the tables beneath, " + strings.Join(
			beneath,
			", ",
		), err
	}
	return stored, "", err
}

// dropped reports whether a task drops tables and views with a stored name.
func dropped(name string) bool {
	return slices.ContainsFunc(tasks.Pipeline, func(t plan.Task) bool {
		return slices.ContainsFunc(
			t.Drops,
			func(w plan.WorkTables) bool { return campaign.IsWorkTableName(name, w.Prefix, w.Bare) },
		)
	})
}

// findHeld finds the table with a name ($2) in a schema ($1), or one of some ($3) in any: as it is stored or in lower
// case, also quoted, and with its schema before it.
const findHeld = `
SELECT c.relname::text, c.relkind = 'p' AND c.relispartition, c.relkind = 'm', CASE
  WHEN c.relkind IN ('v', 'm') THEN ARRAY(SELECT DISTINCT format('%s.%s', tn.nspname, t.relname)
  FROM pg_rewrite w JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
    AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> c.oid
  JOIN pg_class t ON t.oid = d.refobjid JOIN pg_namespace tn ON tn.oid = t.relnamespace WHERE w.ev_class = c.oid
    ORDER BY 1) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS
  JOIN LATERAL (SELECT '"' || replace(c.relname, '"', '""') || '"' AS name, '"' || replace(n.nspname, '"',
  '""') || '"' AS schema) AS quoted
CROSS
  JOIN LATERAL (SELECT $2 IN (c.relname, quoted.name, n.nspname || '.' || c.relname, n.nspname || '.' || quoted.name,
  quoted.schema || '.' || quoted.name) AS is) AS so
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (n.nspname = $1 OR c.oid = ANY ($3::oid[]))
  AND (so.is OR lower($2) IN (c.relname, lower(n.nspname) || '.' || c.relname))
ORDER BY so.is DESC, n.nspname = $1 DESC LIMIT 1`

// elsewhere returns the OIDs of the tables and partitions that a hold may name although they are in other schemas:
// partitions of the application's tables, and what foreign keys reach from these.
func elsewhere(c *campaign.Catalog) (oids []uint32) {
	for _, t := range c.Tables(func(*campaign.Table) bool { return true }) {
		for _, t := range append(t.Dependents(), t) {
			oids = append(oids, t.OID)
			for _, leaf := range t.Leaves {
				oids = append(oids, leaf.OID)
			}
		}
	}
	return oids
}
