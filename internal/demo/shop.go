package demo

import (
	"context"
	_ "embed" // for the schema and the policies of the shop
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/cli"
	"github.com/cleanupd/cleanupd/internal/cli/contexts"
	"github.com/cleanupd/cleanupd/internal/cli/policies"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

const shopDatabase = "shop"

//go:embed shop.sql
var shopSchema string

//go:embed shop.yaml
var shopPolicies string

func createShop(ctx context.Context, pg *localpg.Server) error {
	conn, err := campaigndb.Create(ctx, pg.URL, shopDatabase, shopSchema)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func applyPolicies(ctx context.Context, out io.Writer, s *serve.Server) error {
	apply := "apply - --yes --server " + s.GRPC.Addr().String()
	fmt.Fprintf(out, "\n$ cleanupd policies %s <internal/demo/shop.yaml\n", apply)
	cmd := policies.NewCommand()
	cmd.SetIn(strings.NewReader(shopPolicies))
	return execute(ctx, out, cmd, apply)
}

// cleanShop previews the policies, starts a run that does exactly what the preview said, and prints what became of
// the rows.
func cleanShop(ctx context.Context, out *terminal.Screen, s *serve.Server, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	before, err := countShop(ctx, conn)
	if err != nil {
		return err
	}
	preview := "--preview --yes --server " + s.GRPC.Addr().String()
	fmt.Fprintf(out, "\n$ cleanupd run %s\n", preview)
	if err := execute(ctx, out, cli.NewRun(), preview); err != nil {
		return err
	}
	run, err := lastRun(ctx, s)
	if err != nil {
		return err
	}
	after, err := countShop(ctx, conn)
	if err != nil {
		return err
	}
	return printShop(out, before, after, run)
}

func lastRun(ctx context.Context, s *serve.Server) (*cleanupv1.Run, error) {
	conn, err := (&rpc.Server{Context: contexts.Context{Address: s.GRPC.Addr().String()}}).Dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	client := cleanupd.NewClient(conn)
	list, err := client.ListRuns(ctx, &cleanupv1.ListRunsRequest{PageSize: 1})
	if err != nil || len(list.GetRuns()) == 0 {
		return nil, rpc.PlainError(err)
	}
	stored, err := client.GetRun(ctx, &cleanupv1.GetRunRequest{RunId: list.GetRuns()[0].GetId()})
	return stored.GetRun(), rpc.PlainError(err)
}

// shopTables are the tables of the shop with their policies; customers have none.
var shopTables = []struct{ table, policy string }{
	{"audit_log", "newest-audit"},
	{"customers", ""},
	{"events", "old-events"},
	{"orders", "anonymize-orders"},
	{"sessions", "orphan-sessions"},
}

func countShop(ctx context.Context, conn *pgx.Conn) (rows []int64, err error) {
	for _, t := range shopTables {
		var n int64
		sql := "SELECT count(*) FROM " + pgx.Identifier{t.table}.Sanitize()
		if err := conn.QueryRow(ctx, sql).Scan(&n); err != nil {
			return nil, err
		}
		rows = append(rows, n)
	}
	return rows, nil
}

// printShop prints for each table: how many rows there were, how many the run reports as deleted and as changed, and
// how many remain.
func printShop(s *terminal.Screen, before, after []int64, run *cleanupv1.Run) error {
	table := []terminal.Row{{"TABLE", "POLICY", "BEFORE", "DELETED", "CHANGED", "AFTER"}}
	var total [4]int64
	add := func(name, policyName string, figures [4]int64) {
		row := terminal.Row{name, policyName}
		for _, figure := range figures {
			row = append(row, humanize.Comma(figure))
		}
		table = append(table, row)
	}
	for i, t := range shopTables {
		figures := [4]int64{before[i], 0, 0, after[i]}
		for _, result := range run.GetResults() {
			if t.policy != "" && result.GetTask() == policy.Prefix+t.policy {
				figures[1], figures[2] = result.GetRowsDeleted(), result.GetRowsUpdated()
			}
		}
		add(t.table, t.policy, figures)
		for k, figure := range figures {
			total[k] += figure
		}
	}
	add("total", "", total)
	fmt.Fprintln(s)
	return s.PrintTable(table)
}
