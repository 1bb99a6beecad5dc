package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

const (
	byAge  = "by age"
	newest = "the newest of each group"
)

// policyTable is the table of the measured policy, and warmUpTable a small one for the first run of the service.
const (
	policyTable = "shop.login"
	warmUpTable = "shop.basket"
)

// PolicyCells returns the tables for a policy by age, and for some policies that retain the newest rows of each
// group: many small groups in the order of time, as in a log, many small scattered groups, and few large ones.
func PolicyCells(rows int) []Cell {
	return []Cell{
		{Rows: rows, Old: 50, Scattered: true, Policy: byAge},
		{Rows: rows, Old: 50, Policy: newest, Group: 30},
		{Rows: rows, Old: 50, Scattered: true, Policy: newest, Group: 30},
		{Rows: rows, Old: 50, Scattered: true, Policy: newest, Group: min(3_000, rows/4)},
	}
}

func (c Cell) policies() (warmUp, measured policy.Policy) {
	warmUp = policy.Policy{
		Name: "warm-up", Table: warmUpTable, Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(180)},
	}
	measured = policy.Policy{Name: "measured", Table: policyTable, Enabled: true, OlderThan: warmUp.OlderThan}
	if c.Policy == newest {
		measured.OlderThan = nil
		measured.KeepNewest = &policy.KeepNewest{Per: []string{"customer"}, OrderBy: "at", Count: c.kept()}
	}
	return warmUp, measured
}

func (c Cell) kept() int { return c.Group * (100 - c.Old) / 100 }

type target struct {
	table string
	// warmUp is the task of the service's first run, and task that of the measurement.
	warmUp, task string
	obsolete     string
}

func (c Cell) target() target {
	if c.Policy == "" {
		return target{table, "sessions", task, old}
	}
	warmUp, measured := c.policies()
	t := target{policyTable, warmUp.TaskName(), measured.TaskName(), "at < now() - interval '180 days'"}
	if c.Policy == newest {
		t.obsolete = fmt.Sprintf(
			"id IN (SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY customer ORDER BY at DESC) AS place FROM %s)"+
				" AS ranked WHERE place > %d)",
			policyTable,
			c.kept(),
		)
	}
	return t
}

// policyMethods returns the statement that people would write, alone and with the VACUUM that the service runs
// after policies, and the service.
func (c Cell) policyMethods() []Method {
	t := c.target()
	name := "one DELETE"
	if c.Policy == newest {
		name = "DELETE by row_number()"
	}
	alone := Method{Name: name, statement: "DELETE FROM " + t.table + " WHERE " + t.obsolete, synchronous: true}
	vacuumed := alone
	vacuumed.Name, vacuumed.after = name+", VACUUM", "VACUUM (ANALYZE, TRUNCATE false) "+t.table
	return []Method{
		alone,
		vacuumed,
		{Name: "cleanupd"},
		{Name: "cleanupd, synchronous", synchronous: true},
	}
}

func (c Cell) fillPolicies(ctx context.Context, pg *localpg.Server, name string) error {
	conn, err := campaigndb.Create(ctx, pg.URL, name, "")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	group, at := max(c.Group,
		30), "CASE WHEN random() <= $1 / 100.0 THEN now() - interval '200 days' ELSE now() END - "+
		"random() * interval '10 days'"
	if !c.Scattered {
		at = "now() - interval '180 days' * (1 - i / $2::float8) / (1 - $1 / 100.0)"
	}
	at = strings.NewReplacer("$1", strconv.Itoa(c.Old), "$2", strconv.Itoa(c.Rows)).Replace(at)
	for _, sql := range []string{
		"CREATE SCHEMA shop",
		"CREATE TABLE shop.basket (id int PRIMARY KEY, at timestamptz); INSERT INTO shop.basket VALUES (1, '2000-01-01')",
		"CREATE TABLE shop.login (id bigint PRIMARY KEY, customer int NOT NULL, at timestamptz NOT NULL, agent text)",
		fmt.Sprintf(`INSERT INTO shop.login SELECT i, random() * %d, %s, repeat(md5(i::text), 2)
			FROM generate_series(1, %d) i`, c.Rows/group, at, c.Rows),
		"CREATE INDEX ON shop.login (at); CREATE INDEX ON shop.login (customer, at)",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE, FREEZE) shop.login")
	return err
}

// setPolicies stores the policies of a cell as rules that have run before, so that no guard refuses them.
func (c Cell) setPolicies(ctx context.Context, conn *pgx.Conn) error {
	if c.Policy == "" {
		return nil
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		warmUp, measured := c.policies()
		for _, p := range []policy.Policy{warmUp, measured} {
			if err := store.SetPolicy(ctx, tx, p); err != nil {
				return err
			}
			const proven = "UPDATE cleanupd.policy SET proven_basis = $2 WHERE name = $1"
			if _, err := tx.Exec(ctx, proven, p.Name, p.Basis()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c Cell) describePolicy() string {
	if c.Policy == newest {
		order := "in the order of time"
		if c.Scattered {
			order = "scattered"
		}
		return fmt.Sprintf("%s: %d of %d, %s", newest, c.kept(), c.Group, order)
	}
	return c.Policy
}
