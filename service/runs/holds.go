package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

const (
	maxHoldIDs     = 10_000  // in one hold
	maxIDsOnHold   = 100_000 // in all holds together
	maxHoldsOfRows = 100     // all together, since each is a condition of every statement
	maxHoldReason  = 1_000   // in characters
)

// CreateHold stores a hold and then waits until all batches have ended that may have begun before. A hold of
// everything also waits for work on Forms databases. It fails with failure.Violations, or with a failure.Refusal if
// another instance owns the database. If it fails while it waits, the hold is stored nevertheless.
func (m *Manager) CreateHold(ctx context.Context, h store.Hold) (*store.Hold, error) {
	config, err := m.readConfig(ctx, m.calls)
	if err != nil {
		return nil, err
	}
	scope := config.Scope()
	if h.Kind == store.HoldRows && connection.IsStorable(h.Rows.Table) {
		scope.Held = []string{h.Rows.Table}
	}
	catalog, err := campaign.LoadCatalog(ctx, m.calls, scope)
	if err != nil {
		return nil, err
	}
	if err := validateHold(ctx, m.calls, catalog, &h); err != nil {
		return nil, err
	}
	if h.Kind == store.HoldRows {
		if err := checkConcerned(ctx, config, m.calls, &h); err != nil {
			return nil, err
		}
	}
	if h.Kind == store.HoldRecipients {
		config.DryRun = true // so that missing rights on tables do not matter
		env, err := cleanup.EnvOf(ctx, config, m.pool, catalog, rules.Holds{})
		if err != nil {
			return nil, err
		}
		if h.NotCovered, err = rules.NotCoveredByRecipients(env); err != nil {
			return nil, err
		}
	}
	var stored *store.Hold
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if err := m.owner.Lock(ctx, tx); err != nil {
			return err
		}
		if err := store.LockHolds(ctx, tx); err != nil {
			return err
		}
		if err := checkTotal(ctx, tx, &h); err != nil {
			return err
		}
		if stored, err = store.InsertHold(ctx, tx, h); err != nil {
			return err
		}
		return audit.Note(ctx, tx, audit.Details{
			"hold_id": stored.ID,
			"kind":    stored.Kind,
			"ids":     stored.IDs,
			"table":   stored.Table,
			"rows":    stored.Rows,
			"reason":  stored.Reason,
		})
	})
	if err != nil {
		return nil, err
	}
	if h.Kind == store.HoldEverything {
		if err := awaitErasing(ctx, m.calls); err != nil {
			return nil, err
		}
	}
	stored.RowsNow, stored.Hidden = h.RowsNow, h.Hidden
	return stored, m.awaitBatches(ctx, "")
}

// kindsOfParents are, by table, the kinds of holds that also retain rows that belong to the held ones without foreign
// keys.
var kindsOfParents = map[string]string{
	"nmsdelivery": "deliveries", "nmsgroup": "lists", "xtkworkflow": "workflows", "nmsrecipient": "recipients",
}

// validateHold also completes the names of the table and its columns, and counts the rows. It fails with
// failure.Violations, or with a failure.Precondition if the role cannot read the columns.
func validateHold(ctx context.Context, db *pgxpool.Pool, c *campaign.Catalog, h *store.Hold) error {
	var wrong failure.Violations
	idsField := map[store.HoldKind]string{
		store.HoldDeliveries: "hold.deliveries.ids",
		store.HoldLists:      "hold.lists.ids",
		store.HoldWorkflows:  "hold.workflows.ids",
		store.HoldRecipients: "hold.recipients.ids",
	}
	switch field := idsField[h.Kind]; {
	case h.Kind == "" && c.Schema == "":
		wrong.Add("hold", "must name what to hold: table, rows or everything")
	case h.Kind == "":
		wrong.Add("hold", "must name what to hold: deliveries, lists, workflows, table, recipients, rows or everything")
	case field != "" && c.Schema == "":
		wrong.Add(strings.TrimSuffix(field, ".ids"),
			"is a kind of row of Campaign, whose tables this service does not clean: hold a table, rows or everything")
	case field != "" && (len(h.IDs) == 0 || len(h.IDs) > maxHoldIDs):
		wrong.Addf(field, "must have 1 to %d ids, not %d", maxHoldIDs, len(h.IDs))
	case field != "" && slices.Contains(h.IDs, 0):
		wrong.Add(field, "contains 0, which is not an id")
	case h.Kind == store.HoldTable:
		problem, err := findTable(ctx, db, c, h)
		if err != nil {
			return err
		}
		if problem != "" {
			wrong.Add("hold.table.name", problem)
		}
	case h.Kind == store.HoldRows:
		t, err := policy.CheckRows(ctx, db, c, h.Rows)
		if !errors.As(err, &wrong) && err != nil {
			return err
		}
		if kind := kindsOfParents[campaign.BaseName(h.Rows.Table)]; err == nil && kind != "" && t.Schema == c.Schema {
			wrong.Addf("hold.rows.table", "%s has rows of Campaign to which others belong without foreign keys: hold %s by "+
				"their ids, which keeps those as well", h.Rows.Table, kind)
		}
		if err == nil {
			h.Relation, h.Schema, h.Table = t.OID, t.Schema, t.Name
			if err := countRows(ctx, db, t, h); err != nil {
				return err
			}
		}
	}
	switch reason := string(h.Reason); {
	case !strings.ContainsFunc(reason, isReadable):
		wrong.Add("hold.reason", "is missing: it explains the hold to those who find it years later")
	case strings.ContainsRune(reason, 0):
		wrong.Add("hold.reason", "contains a NUL character, which PostgreSQL cannot store")
	case utf8.RuneCountInString(reason) > maxHoldReason:
		wrong.Addf("hold.reason", "is longer than %d characters", maxHoldReason)
	}
	now, err := store.Now(ctx, db)
	if err != nil {
		return err
	}
	if h.ExpireTime != nil && !h.ExpireTime.After(now) {
		wrong.Add("hold.expire_time", "must be in the future")
	}
	return wrong.Err()
}

// findTable finds the table or partition of a hold by its name, and returns why it cannot be held; "" if it can.
func findTable(
	ctx context.Context, db campaign.Querier, c *campaign.Catalog, h *store.Hold,
) (problem string, err error) {
	name := h.Table
	if name == "" || !connection.IsStorable(name) {
		return "must be the name of a table", nil
	}
	var known, inner, materialized bool
	var beneath []string
	err = db.QueryRow(ctx, selectTable, c.Schema, name, inOtherSchemas(c)).
		Scan(&h.Relation, &h.Schema, &h.Table, &known, &inner, &materialized, &beneath)
	missing := errors.Is(err, pgx.ErrNoRows)
	switch {
	case err != nil && !missing:
		return "", err
	case missing && c.Schema == "": // not Campaign
		hint, err := campaign.SimilarTables(ctx, db, name)
		return fmt.Sprintf("there is no table %.64q%s", name, hint), err
	case !known && c.Schema == "":
		return fmt.Sprintf("no policy, and no foreign key to its table, reaches the table %.64q", name), nil
	case !known:
		hint, err := campaign.SimilarTables(ctx, db, name)
		return fmt.Sprintf("schema %q has no table %.64q%s", c.Schema, name, hint), err
	case inner:
		return "is a partition that is partitioned itself: name the table, or those partitions that have rows", err
	case beneath != nil && (materialized || !mayBeDropped(h.Table)):
		return "is a view, which a hold does not protect: name its tables, " + strings.Join(beneath, ", "), err
	}
	return "", err
}

// selectTable finds the table or view named $2, preferring known ones: those in schema $1, or with an OID in $3. The
// name may be quoted, and may have a schema. A stored name in lower case matches in any case, like an unquoted
// identifier.
const selectTable = `
SELECT c.oid, n.nspname::text, c.relname::text, so.known, c.relkind = 'p' AND c.relispartition, c.relkind = 'm', CASE
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
  quoted.schema || '.' || quoted.name) AS is, n.nspname = $1 OR c.oid = ANY (COALESCE($3::oid[], '{}')) AS known) AS so
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND (so.is OR lower($2) IN (c.relname, lower(n.nspname) || '.' || c.relname))
ORDER BY so.known DESC, so.is DESC, n.nspname = $1 DESC LIMIT 1`

// inOtherSchemas returns the OIDs of tables outside the application's schema that a hold may name: partitions of
// the application's tables, tables of policies, and tables from which foreign keys delete rows along with these.
func inOtherSchemas(c *campaign.Catalog) (oids []uint32) {
	for _, t := range c.All() {
		for _, t := range append(t.Dependents(), t) {
			oids = append(oids, t.OID)
			for _, leaf := range t.Leaves {
				oids = append(oids, leaf.OID)
			}
		}
	}
	return oids
}

// mayBeDropped reports whether tasks drop tables and views with this stored name.
func mayBeDropped(name string) bool {
	return slices.ContainsFunc(tasks.Pipeline, func(t rules.Task) bool {
		return slices.ContainsFunc(t.Drops, func(w rules.WorkTables) bool {
			return campaign.IsWorkTableName(name, w.Prefix, w.Bare)
		})
	})
}

// isReadable reports whether a character is a visible letter or digit. Some letters, such as fillers, are
// invisible.
func isReadable(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsNumber(r)) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// MaxRowsNow limits the counted rows of a hold.
const MaxRowsNow = 10_000

// countRows sets how many rows of its table a hold of rows would have now, unless counting them takes too long.
func countRows(ctx context.Context, db *pgxpool.Pool, t *campaign.Table, h *store.Hold) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100; SET LOCAL statement_timeout = '3s'"); err != nil {
			return err
		}
		n, err := h.Rows.Count(ctx, tx, t, MaxRowsNow)
		if err == nil {
			h.RowsNow = &n
		}
		return err
	})
	if sqlstate.Is(err, pgerrcode.QueryCanceled) || sqlstate.Is(err, pgerrcode.LockNotAvailable) {
		return ctx.Err()
	}
	return err
}

// checkConcerned fails with a failure.FieldError if no task changes rows that the hold of rows keeps.
func checkConcerned(ctx context.Context, config cleanup.Config, pool *pgxpool.Pool, h *store.Hold) error {
	config.DryRun = true // so that missing rights on tables do not matter
	env, err := cleanup.LoadEnv(ctx, config, pool, rules.Holds{Names: []string{""}, Rows: []rules.HeldRows{*h.Rows}})
	if err != nil {
		return err
	}
	concerns, hidden := rules.HoldsConcern(env)
	h.Hidden = hidden
	switch {
	case concerns:
		return nil
	case mayBeDropped(campaign.BaseName(h.Rows.Table)):
		return failure.Field("hold.rows.table", "is a work table, which is dropped as a whole: hold the table")
	}
	return failure.Field("hold.rows.table", fmt.Sprintf("no task or policy deletes or changes rows of %s, or rows that "+
		"foreign keys connect with them: there is nothing to keep", h.Rows.Table))
}

// checkTotal fails with a failure.FieldError if the hold would exceed the limits of all holds together.
func checkTotal(ctx context.Context, db campaign.Querier, h *store.Hold) error {
	onHold, ofRows, err := store.CountOnHold(ctx, db)
	if err != nil {
		return err
	}
	if onHold+len(h.IDs) > maxIDsOnHold {
		return failure.Field("hold", fmt.Sprintf(
			"has %d ids; with the %d already on hold, that exceeds the limit of %d for all holds: release a hold, or hold a "+
				"table or everything",
			len(h.IDs), onHold, maxIDsOnHold,
		))
	}
	if h.Kind == store.HoldRows && ofRows >= maxHoldsOfRows {
		return failure.Field("hold", fmt.Sprintf("exceeds the limit of %d holds of rows: release some, or "+
			"hold a table or everything", maxHoldsOfRows))
	}
	return nil
}

func awaitErasing(ctx context.Context, pool *pgxpool.Pool) error {
	if err := advisory.Squatted(ctx, pool, advisory.Erasing, false); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx,
			fmt.Sprintf("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock(%d)",
				advisory.Erasing))
		return err
	})
}

// awaitBatches waits for the current batches of a task, or of all tasks if task is "".
func (m *Manager) awaitBatches(ctx context.Context, task string) error {
	pool := m.calls
	active, err := store.DeletingRuns(ctx, pool, task)
	if err != nil {
		return err
	}
	transactions := func(query string, arg any) ([]string, error) {
		rows, err := pool.Query(ctx, "SELECT DISTINCT virtualtransaction FROM "+query, arg)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	var open []string
	for _, id := range active {
		more, err := transactions("("+advisory.Holders+") AS h", advisoryLock(id))
		if err != nil {
			return err
		}
		open = append(open, more...)
	}
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if open, err = transactions("pg_locks WHERE virtualtransaction = ANY ($1)", open); err != nil {
			return err
		}
	}
	return nil
}

// ListHolds is store.ListHolds, with the warnings of holds in force.
func (m *Manager) ListHolds(ctx context.Context, ended bool, size int, token string) ([]store.Hold, string, error) {
	list, next, err := store.ListHolds(ctx, m.calls, ended, size, token)
	if err != nil {
		return nil, "", err
	}
	now, err := store.Now(ctx, m.calls)
	if err != nil {
		return nil, "", err
	}
	inForce, _, err := store.ListEffectiveHolds(ctx, m.calls, now)
	if err != nil {
		return nil, "", err
	}
	scope := campaign.Scope{NoCampaign: true}
	for _, h := range inForce {
		for _, rows := range h.Rows {
			scope.Named = append(scope.Named, rows.Table)
		}
	}
	catalog, err := campaign.LoadCatalog(ctx, m.calls, scope)
	if err != nil {
		return nil, "", err
	}
	warnings := map[string][]message.Message{}
	for _, h := range inForce {
		warnings[h.ID] = h.Warnings(catalog)
	}
	for i := range list {
		list[i].Warnings = warnings[list[i].ID]
	}
	return list, next, nil
}

// ReleaseHold releases a hold. It returns a hold that was released before unchanged, and fails with
// store.ErrNoHold.
func (m *Manager) ReleaseHold(ctx context.Context, id, by string) (h *store.Hold, err error) {
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if err := m.owner.Lock(ctx, tx); err != nil {
			return err
		}
		if h, err = store.ReleaseHold(ctx, tx, id, by); err != nil {
			return err
		}
		return audit.Note(ctx, tx, audit.Details{"hold_id": h.ID})
	})
	return h, err
}

// AllHeld is the reason why no person's data is erased while everything is on hold.
const AllHeld = "HELD"

// CheckErasable fails with a failure.Refusal with the reason AllHeld if everything is on hold.
func CheckErasable(ctx context.Context, db campaign.Querier) error {
	now, err := store.Now(ctx, db)
	if err != nil {
		return err
	}
	holds, _, err := store.EffectiveHolds(ctx, db, now)
	if err == nil && holds.Everything {
		err = &failure.Refusal{
			Reason:  AllHeld,
			Message: "everything is held: nothing is erased until that is released",
		}
	}
	return err
}
