// Command bench compares ways to delete old rows from a large table, side by side on one server: one unbatched DELETE,
// the published statement, statements of job queues, and the service itself.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/localpg"
)

type Cell struct {
	Rows      int
	Old       int  // the percentage of old rows
	Scattered bool // old rows are interspersed with young ones; otherwise they are at the beginning of the table
	NoIndex   bool // there is no index on the date
	Wide      bool // rows of about 600 bytes; otherwise of 90
	HeldBack  bool // an old transaction keeps dead rows from being removed
	// Policy is the kind of policy that deletes from a table of another application; empty for a task of the service.
	// Group is how many rows a group has, if the newest rows of each group are retained.
	Policy string
	Group  int
}

func (c Cell) String() string {
	parts := []string{fmt.Sprintf("%s rows, %d %% old", millions(c.Rows), c.Old), "by age"}
	if c.Policy != "" {
		return parts[0] + ", a policy " + c.describePolicy()
	}
	if c.Scattered {
		parts[1] = "scattered"
	}
	for _, trait := range []struct {
		is   bool
		text string
	}{{c.NoIndex, "no index"}, {c.Wide, "wide"}, {c.HeldBack, "horizon held back"}} {
		if trait.is {
			parts = append(parts, trait.text)
		}
	}
	return strings.Join(parts, ", ")
}

func millions(n int) string {
	if n%1_000_000 == 0 {
		return fmt.Sprintf("%d M", n/1_000_000)
	}
	return fmt.Sprintf("%.2g M", float64(n)/1e6)
}

func DefaultCells(rows int) []Cell {
	return []Cell{
		{Rows: rows, Old: 50},
		{Rows: rows, Old: 50, Scattered: true},
		{Rows: rows, Old: 5},
		{Rows: rows, Old: 95},
		{Rows: rows, Old: 50, Scattered: true, HeldBack: true},
		{Rows: rows / 2, Old: 50, Scattered: true},
	}
}

func AllCells(rows int) (cells []Cell) {
	for _, n := range []int{rows, rows / 2} {
		for _, old := range []int{5, 50, 95} {
			for bits := range 16 {
				cells = append(cells, Cell{
					Rows:      n,
					Old:       old,
					Scattered: bits&1 > 0,
					NoIndex:   bits&2 > 0,
					Wide:      bits&4 > 0,
					HeldBack:  bits&8 > 0,
				})
			}
		}
	}
	return cells
}

// table is the table from which rows are deleted, by the rule of the task that the service runs.
const (
	table = "NmsBroadLogRcp"
	task  = "delivery-logs"
	key   = "iBroadLogId"
	old   = "tsLastModified < now() - interval '180 days'"
)

// fill creates the cell's database. Each measurement uses a copy.
func (c Cell) fill(ctx context.Context, pg *localpg.Server, name string) error {
	if c.Policy != "" {
		return c.fillPolicies(ctx, pg, name)
	}
	conn, err := campaigndb.Create(ctx, pg.URL, name, campaigndb.Schema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	share := "i::float8 / $1::int" // how far the row is from the beginning
	if c.Scattered {
		share = "random()"
	}
	width := 20
	if c.Wide {
		width = 250 // in two columns, as text that does not compress
	}
	for _, sql := range []string{
		"INSERT INTO NmsDelivery (iDeliveryId) VALUES (0), (1)",
		"INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sName, sBroadLogSchema) VALUES (1, 'mapRecipient', " +
			"'nms:broadLogRcp')",
		"INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', 1)",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(
		ctx,
		fmt.Sprintf(`INSERT INTO %s (iBroadLogId, iDeliveryId, iRecipientId, iStatus, sAddress, tsEvent, tsLastModified)
		SELECT i, i %% 1000, i, 1, left(repeat(md5(i::text), 8), %d), now(), CASE
			WHEN %s <= $2::int / 100.0 THEN now() - interval '200 days' ELSE now() END - random() * interval '10 days'
		FROM generate_series(1, $1::int) i`, table, width, share),
		c.Rows, c.Old,
	); err != nil {
		return err
	}
	if c.NoIndex {
		if _, err := conn.Exec(
			ctx, "DROP INDEX NmsBroadLogRcp_modif, NmsBroadLogRcp_dlv; CREATE INDEX ON "+table+" (iDeliveryId)",
		); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE, FREEZE) "+table)
	return err
}
