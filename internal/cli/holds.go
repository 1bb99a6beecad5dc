package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/runs"
)

func NewHolds() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	return withSubcommands(
		&cobra.Command{
			Use:   "holds [list | create | release | export]",
			Short: "Show and change holds, which keep data that the rules would delete",
			Long: "Show and change holds, such as for a lawsuit. The service does not delete, update or drop data on\n" +
				"hold, even if the rules select it, until the hold is released or expires. Holds bind this service,\n" +
				"not the application itself.",
			Example: "  cleanupd holds\n  cleanupd holds create --rows shop.orders.user_id=17 --reason 'lawsuit 12/2026'",
		},
		&server, &output, newListHolds(&server, &output), newCreateHold(&server, &output),
		newReleaseHold(&server, &output), newExportHolds(&server, &output),
	)
}

func newListHolds(server *rpc.Server, output *format.Output) *cobra.Command {
	var ended bool
	var limit int32
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the current holds, newest first",
		Example: "  cleanupd holds list --include-ended",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			holds, err := listHolds(cmd, client, limit, ended)
			if err != nil {
				return err
			}
			defer rpc.PrintMore(cmd.ErrOrStderr(), holds)
			for _, h := range holds.GetHolds() {
				for _, w := range h.GetWarnings() {
					fmt.Fprintf(cmd.ErrOrStderr(), "Warning: hold %s: %s\n", h.GetId(), terminal.Printable(w.GetText()))
				}
			}
			return output.Print(cmd.OutOrStdout(), holds, holdsTable(holds.GetHolds()...))
		}),
	}
	cmd.Flags().BoolVar(&ended, "include-ended", false, "also list holds that were released or have expired")
	rpc.AddLimitFlag(cmd.Flags(), &limit)
	return cmd
}

func listHolds(
	cmd *cobra.Command, client cleanupd.Client, limit int32, ended bool,
) (*cleanupv1.ListHoldsResponse, error) {
	return rpc.List(limit, service.MaxHolds, func(size int32, token string) (*cleanupv1.ListHoldsResponse, int, error) {
		req := &cleanupv1.ListHoldsRequest{PageSize: size, PageToken: token, IncludeEnded: ended}
		page, err := client.ListHolds(cmd.Context(), req)
		return page, len(page.GetHolds()), err
	})
}

type holdFlags struct {
	deliveries, lists, workflows, recipients []int64
	rows                                     []string
	table, reason, expires                   string
	everything                               bool
}

func newCreateHold(server *rpc.Server, output *format.Output) *cobra.Command {
	var hold holdFlags
	cmd := &cobra.Command{
		Use: "create --reason TEXT (--rows TABLE.COLUMN=VALUE | --table NAME | --everything | --deliveries IDS | " +
			"--lists IDS | --workflows IDS | --recipients IDS)",
		Short: "Create a hold, and wait until it applies to active runs",
		Example: "  cleanupd holds create --rows shop.orders.user_id=17,region=EU --reason 'lawsuit 12/2026'\n" +
			"  cleanupd holds create --table shop.payments --reason 'being migrated'\n" +
			"  cleanupd holds create --everything --reason 'audit' --expire-time 2027-01-31T00:00:00Z",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			message, err := hold.message()
			if err != nil {
				return err
			}
			resp, err := client.CreateHold(cmd.Context(), &cleanupv1.CreateHoldRequest{Hold: message})
			if err != nil {
				return err
			}
			if tables := resp.GetHold().GetNotCovered(); len(tables) > 0 {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"Not on hold, since they do not refer to a recipient by iRecipientId: "+strings.Join(tables, ", "))
			}
			for _, w := range resp.GetWarnings() {
				fmt.Fprintln(cmd.ErrOrStderr(), "Warning: "+terminal.Printable(w.GetText()))
			}
			if err := output.Print(cmd.OutOrStdout(), resp, holdsTable(resp.GetHold())); err != nil {
				return err
			}
			if n := resp.GetRowsNow(); n > 0 && *output == format.Table {
				atLeast := ""
				if n == runs.MaxRowsNow {
					atLeast = "at least "
				}
				const holds = "It holds %s%s of %s now, with all that refers to them by foreign keys.\n"
				fmt.Fprintf(cmd.OutOrStdout(), holds, atLeast, format.Rows(n),
					terminal.Printable(resp.GetHold().GetRows().GetTable()))
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&hold.rows, "rows", nil, "rows to keep with all that refers to them by foreign keys, as "+
		"TABLE.COLUMN=VALUE[,COLUMN=VALUE...]; names may be quoted as in SQL, and a value with "+
		"a comma or quotes is written as '\"COLUMN=VALUE\"'")
	f.StringVar(&hold.table, "table", "", "the name of a table to keep with all of its rows")
	f.BoolVar(&hold.everything, "everything", false, "delete nothing until the hold is released")
	f.StringVar(&hold.reason, "reason", "", "the reason, for those who find the hold years later (required)")
	f.StringVar(&hold.expires, "expire-time", "",
		"when the hold ends by itself, as 2027-01-31T00:00:00Z; empty: when it is released")
	f.Int64SliceVar(&hold.deliveries, "deliveries", nil,
		"the ids of deliveries to keep, with everything that belongs to them")
	f.Int64SliceVar(&hold.lists, "lists", nil, "the ids of lists to keep, with their members and tables")
	f.Int64SliceVar(&hold.workflows, "workflows", nil,
		"the ids of workflows whose logs, tasks, events and work tables to keep")
	f.Int64SliceVar(&hold.recipients, "recipients", nil,
		"the ids of recipients: rows that have one in iRecipientId are kept")
	flags.Arrange(f, []flags.Group{{
		Title: "Flags for databases of Adobe Campaign", Help: []string{"deliveries", "lists", "workflows", "recipients"},
	}})
	rpc.CompleteFlag(cmd, "table", rpc.Complete(server, knownTables))
	flags.WithoutVariable(f, "rows") // in the demo it is a number
	return cmd
}

func (f *holdFlags) message() (*cleanupv1.Hold, error) {
	hold := &cleanupv1.Hold{Reason: f.reason}
	kinds := 0
	rows := func(ids []int64) *cleanupv1.HeldRows {
		kinds++
		return &cleanupv1.HeldRows{Ids: ids}
	}
	if f.deliveries != nil {
		hold.What = &cleanupv1.Hold_Deliveries{Deliveries: rows(f.deliveries)}
	}
	if f.lists != nil {
		hold.What = &cleanupv1.Hold_Lists{Lists: rows(f.lists)}
	}
	if f.workflows != nil {
		hold.What = &cleanupv1.Hold_Workflows{Workflows: rows(f.workflows)}
	}
	if f.recipients != nil {
		hold.What = &cleanupv1.Hold_Recipients{Recipients: rows(f.recipients)}
	}
	if f.table != "" {
		kinds++
		hold.What = &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: f.table}}
	}
	if f.rows != nil {
		kinds++
		rows, err := parseHeldRows(f.rows)
		if err != nil {
			return nil, err
		}
		hold.What = &cleanupv1.Hold_Rows{Rows: rows}
	}
	if f.everything {
		kinds++
		hold.What = &cleanupv1.Hold_Everything{Everything: &cleanupv1.HeldEverything{}}
	}
	switch {
	case kinds != 1:
		return nil, flags.Errorf(
			"give one of --deliveries, --lists, --workflows, --table, --recipients, --rows and --everything")
	case f.reason == "":
		return nil, flags.Errorf("--reason is required: give the reason, for those who find the hold years later")
	case f.expires != "":
		at, err := time.Parse(time.RFC3339, f.expires)
		if err != nil {
			return nil, flags.Errorf("--expire-time: %q is not a time such as 2027-01-31T00:00:00Z", f.expires)
		}
		hold.ExpireTime = timestamppb.New(at)
	}
	return hold, nil
}

// parseHeldRows parses the values of --rows, of which the first one also names the table. Quotes are around a name, as
// in SQL, or around COLUMN=VALUE.
func parseHeldRows(given []string) (*cleanupv1.HeldTableRows, error) {
	var values []string
	for _, text := range given {
		values = append(values, flags.SplitUnquoted(text, ',')...)
	}
	rows := &cleanupv1.HeldTableRows{}
	for i, text := range values {
		column, value, ok := flags.CutUnquoted(text, '=')
		if ok {
			ok = !strings.Contains(value, `"`) // it could be meant as a part of the value, or not
		} else {
			column, value, ok = flags.CutUnquoted(flags.Unquote(text), '=')
		}
		if i == 0 {
			rows.Table, column = flags.TableAndColumn(column)
			ok = ok && rows.Table != ""
		} else {
			column = flags.Unquote(column)
		}
		switch {
		case ok && column != "":
			rows.Columns = append(rows.Columns, &cleanupv1.HeldColumn{Column: column, Value: value})
		case i == 0:
			return nil, flags.Errorf("--rows: %q is not TABLE.COLUMN=VALUE, such as orders.user_id=17 or "+
				"shop.orders.user_id=17,region=EU", text)
		default:
			return nil, flags.Errorf("--rows: %q is not COLUMN=VALUE, such as region=EU in "+
				`orders.user_id=17,region=EU; a value with a comma or quotes is written as '"region=EU, UK"'`, text)
		}
	}
	return rows, nil
}

func newReleaseHold(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:               "release HOLD_ID",
		Short:             "End a hold: the next run deletes what the rules select",
		Example:           "  cleanupd holds release 1f104d",
		Args:              flags.OneArgument("the id of a hold, or its end, as in cleanupd holds"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownHolds)),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			id, err := completeID(args[0], "hold", func() (ids []string, err error) {
				all, err := listHolds(cmd, client, math.MaxInt32, true)
				for _, h := range all.GetHolds() {
					ids = append(ids, h.GetId())
				}
				return ids, err
			})
			if err != nil {
				return err
			}
			resp, err := client.ReleaseHold(cmd.Context(), &cleanupv1.ReleaseHoldRequest{HoldId: id})
			if err != nil {
				return err
			}
			return output.Print(cmd.OutOrStdout(), resp, holdsTable(resp.GetHold()))
		}),
	}
}

func newExportHolds(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:     "export",
		Short:   "Print all holds, including ended ones, one per line in JSON, the oldest first",
		Example: "  cleanupd holds export",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			holds, err := listHolds(cmd, client, math.MaxInt32, true)
			if err != nil {
				return err
			}
			for _, h := range slices.Backward(holds.GetHolds()) {
				if err := output.PrintMessage(cmd.OutOrStdout(), h); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func holdsTable(holds ...*cleanupv1.Hold) []terminal.Row {
	rows := []terminal.Row{{"HOLD", "WHAT", "CREATED", "BY", "ENDS", "REASON"}}
	for _, h := range holds {
		ends := cmp.Or(format.Time(h.GetExpireTime()), "when released")
		if h.GetReleaseTime() != nil {
			ends = "released " + format.Time(h.GetReleaseTime()) + " by " + h.GetReleasedBy()
		}
		rows = append(rows,
			terminal.Row{
				h.GetId(), holdSubject(h), format.Time(h.GetCreateTime()), h.GetCreatedBy(), ends, h.GetReason(),
			})
	}
	return rows
}

func holdSubject(h *cleanupv1.Hold) string {
	switch what := h.GetWhat().(type) {
	case *cleanupv1.Hold_Deliveries:
		return "deliveries " + firstIDs(what.Deliveries)
	case *cleanupv1.Hold_Lists:
		return "lists " + firstIDs(what.Lists)
	case *cleanupv1.Hold_Workflows:
		return "workflows " + firstIDs(what.Workflows)
	case *cleanupv1.Hold_Recipients:
		return "recipients " + firstIDs(what.Recipients)
	case *cleanupv1.Hold_Table:
		return "table " + what.Table.GetName()
	case *cleanupv1.Hold_Rows:
		var columns []string
		for _, c := range what.Rows.GetColumns() {
			columns = append(columns, c.GetColumn()+"="+c.GetValue())
		}
		return "rows " + what.Rows.GetTable() + "." + strings.Join(columns, ",")
	}
	return "everything"
}

func firstIDs(rows *cleanupv1.HeldRows) string {
	const limit = 5
	var ids []string
	for _, id := range rows.GetIds()[:min(len(rows.GetIds()), limit)] {
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	if more := len(rows.GetIds()) - limit; more > 0 {
		ids = append(ids, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(ids, ", ")
}
