package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/policies"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
)

type tableOrder string

var tableOrders = map[tableOrder]cleanupv1.TableOrder{
	"name":   cleanupv1.TableOrder_TABLE_ORDER_NAME,
	"bytes":  cleanupv1.TableOrder_TABLE_ORDER_BYTES,
	"growth": cleanupv1.TableOrder_TABLE_ORDER_GROWTH,
	"rows":   cleanupv1.TableOrder_TABLE_ORDER_ROWS,
}

var orderNames = []string{"name", "bytes", "growth", "rows"}

func (o *tableOrder) String() string { return string(*o) }

func (o *tableOrder) Set(name string) error {
	if !slices.Contains(orderNames, name) {
		return fmt.Errorf("must be %s", strings.Join(orderNames, ", "))
	}
	*o = tableOrder(name)
	return nil
}

func (o *tableOrder) Type() string { return "order" }

// maxTables is the size of a page.
const maxTables = 1000

func NewTables() *cobra.Command {
	var (
		server    rpc.Server
		output    format.Output
		uncovered bool
		suggest   bool
		limit     int32
		order     = tableOrder("name")
	)
	cmd := &cobra.Command{
		Use:   "tables",
		Short: "List the tables of the database: their size, their growth, and which tasks cover them",
		Long: "List the tables of the database: their size, their growth, and which tasks cover them. Sizes are\n" +
			"estimates of the last VACUUM or ANALYZE. For a large table that nothing covers, a policy is suggested.\n" +
			"With --suggest, it prints a file for cleanupd policies apply instead: a disabled policy for each table\n" +
			"that nothing covers and that has a date, whatever its size.",
		Example: "  cleanupd tables --order-by bytes --limit 20\n  cleanupd tables --uncovered --order-by growth\n" +
			"  cleanupd tables --suggest >policies.yaml\n" +
			"  cleanupd tables -o json | jq -r '.tables[] | select(.suggestion) | .suggestion.policy'",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			if limit < 0 {
				return flags.Errorf("--limit must be 0 or more, not %d", limit)
			}
			request := &cleanupv1.ListTablesRequest{
				OrderBy: tableOrders[order], UncoveredOnly: uncovered || suggest, SuggestAll: suggest,
			}
			var (
				resp *cleanupv1.ListTablesResponse
				err  error
			)
			if suggest && server.InProcess() { // reading is enough
				err = policies.LookAt(cmd.Context(), server.DatabaseURL(), service.Look{},
					func(look service.Look, ctx context.Context) (err error) {
						resp, err = look.Uncovered(ctx)
						return err
					})
			} else {
				resp, err = listTables(cmd.Context(), client, request, limit)
			}
			if err != nil {
				return err
			}
			defer rpc.PrintMore(cmd.ErrOrStderr(), resp)
			if suggest && output == format.Table {
				text, err := policies.Suggested(&server, resp.GetTables())
				if err == nil {
					_, err = io.WriteString(cmd.OutOrStdout(), text)
				}
				return err
			}
			if output != format.Table {
				return output.Print(cmd.OutOrStdout(), resp, nil)
			}
			return printTables(cmd.OutOrStdout(), resp)
		}),
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	cmd.Flags().Var(&order, "order-by", "the order: name, or the greatest bytes, growth or rows first")
	cmd.Flags().BoolVar(&uncovered, "uncovered", false, "list only tables that no task covers")
	cmd.Flags().BoolVar(&suggest, "suggest", false,
		"print a file for cleanupd policies apply, with a disabled policy for each table that nothing covers")
	cmd.Flags().Int32Var(&limit, "limit", 0, "how many to list at most; 0 lists all")
	flags.WithoutVariable(cmd.Flags(), "limit") // 0 means something else to other commands
	// it fails only for an unknown flag
	_ = cmd.RegisterFlagCompletionFunc("order-by",
		cobra.FixedCompletions(orderNames, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// listTables returns at most limit tables; 0 means all of them.
func listTables(
	ctx context.Context, client cleanupd.Client, request *cleanupv1.ListTablesRequest, limit int32,
) (*cleanupv1.ListTablesResponse, error) {
	if limit == 0 {
		limit = math.MaxInt32
	}
	return rpc.List(limit, maxTables, func(size int32, token string) (*cleanupv1.ListTablesResponse, int, error) {
		request.PageSize, request.PageToken = size, token
		page, err := client.ListTables(ctx, request)
		return page, len(page.GetTables()), err
	})
}

// printTables prints below the table what does not fit into a line: why work tables are retained, and the
// suggestions.
func printTables(w io.Writer, resp *cleanupv1.ListTablesResponse) error {
	screen := terminal.ScreenOf(w)
	table := []terminal.Row{{"TABLE", "SIZE", "INDEXES", "PER DAY", "COVERED BY", "ROWS", "30 DAYS", "DEAD", "FREE"}}
	for _, t := range resp.GetTables() {
		table = append(table,
			terminal.Row{
				t.GetName(), format.Size(t.GetBytes()), format.Size(t.GetIndexBytes()), growth(t.Growth_7Days),
				firstTask(t.GetCoveredBy()), humanize.Comma(t.GetRows()), growth(t.Growth_30Days),
				optionalSize(t.DeadBytes), optionalSize(t.FreeBytes),
			})
	}
	if err := screen.PrintTable(table); err != nil {
		return err
	}
	for _, t := range resp.GetTables() {
		printRetained(screen, t)
	}
	for _, t := range resp.GetTables() {
		if err := printSuggestion(screen, t); err != nil {
			return err
		}
	}
	return nil
}

func firstTask(tasks []string) string {
	switch len(tasks) {
	case 0:
		return "–"
	case 1:
		return tasks[0]
	}
	return fmt.Sprintf("%s +%d", tasks[0], len(tasks)-1)
}

// growth returns "" if the growth is unknown.
func growth(grown *int64) string {
	switch {
	case grown == nil:
		return ""
	case *grown < 0:
		return "-" + format.Size(-*grown)
	}
	return format.Size(*grown)
}

func optionalSize(size *int64) string {
	if size == nil {
		return ""
	}
	return format.Size(*size)
}

// printRetained prints why work tables are retained, and how many are unused.
func printRetained(s *terminal.Screen, t *cleanupv1.Table) {
	if t.GetKind() != cleanupv1.TableKind_TABLE_KIND_WORK_TABLES {
		return
	}
	unused := t.GetTableCount()
	fmt.Fprintf(s, "\n%s: %s\n", terminal.Printable(t.GetName()), format.Count(t.GetTableCount(), "table", "tables"))
	for _, r := range t.GetRetained() {
		unused -= r.GetTables()
		fmt.Fprintln(s,
			s.Wrap(
				fmt.Sprintf("  %s retained, %s: %s", format.Count(r.GetTables(), "table", "tables"),
					format.Size(r.GetBytes()), terminal.Printable(r.GetReason())),
				4))
	}
	if unused > 0 {
		fmt.Fprintf(s, "  %s unused\n", format.Count(unused, "table", "tables"))
	}
}

// printSuggestion prints the policy in the form that `cleanupd policies set` reads.
func printSuggestion(s *terminal.Screen, t *cleanupv1.Table) error {
	suggestion := t.GetSuggestion()
	if suggestion == nil {
		return nil
	}
	fmt.Fprintf(s, "\n%s: %s.\n", terminal.Printable(t.GetName()), terminal.Printable(suggestion.GetReason()))
	if suggestion.GetPolicy() != nil {
		text, err := protojson.Marshal(suggestion.GetPolicy())
		if err != nil {
			return err
		}
		var policy bytes.Buffer
		if err := json.Compact(&policy, text); err != nil { // protojson puts spaces at random
			return err
		}
		fmt.Fprintf(s, "  Policy:  %s\n", &policy)
	}
	if command := suggestion.GetPreviewCommand(); command != "" {
		fmt.Fprintf(s, "  Preview: %s\n", terminal.Printable(command))
	}
	return nil
}
