package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
)

func NewHolds() *cobra.Command {
	var server rpc.Server
	var output format.Output
	cmd := &cobra.Command{
		Use:   "holds [list | create | release | export]",
		Short: "Show and change what stays, whatever the rules say",
		Long: "Show and change what stays, whatever the rules say: what a hold is about is not deleted, updated or " +
			"dropped until it\nis released or expires. Holds bind this service, not the application itself.",
		Example: "  cleanupd holds\n  cleanupd holds create --deliveries 4711,4712 --reason 'lawsuit 12/2026'",
		Args:    flags.OnlyCommands,
	}
	inForce := newListHolds(&server, &output)
	cmd.RunE = inForce.RunE
	cmd.Flags().AddFlagSet(inForce.Flags())
	cmd.AddCommand(
		inForce,
		newCreateHold(&server, &output),
		newReleaseHold(&server, &output),
		newExportHolds(&server, &output),
	)
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

func newListHolds(server *rpc.Server, output *format.Output) *cobra.Command {
	var ended bool
	var limit int32
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the holds in force, newest first",
		Example: "  cleanupd holds list --include-ended",
		Args:    flags.NoArguments,
		RunE: rpc.WithCleanup(
			server,
			func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
				out, err := holds(cmd, client, limit, ended)
				if err != nil {
					return err
				}
				defer rpc.PrintMore(cmd.ErrOrStderr(), out)
				return output.Print(cmd.OutOrStdout(), out, holdsTable(out.GetHolds()))
			},
		),
	}
	cmd.Flags().BoolVar(&ended, "include-ended", false, "also those that were released or have expired")
	rpc.AddLimitFlag(cmd.Flags(), &limit)
	return cmd
}

// holds are those that there are, up to a limit.
func holds(
	cmd *cobra.Command,
	client cleanupv1.CleanupServiceClient,
	limit int32,
	ended bool,
) (*cleanupv1.ListHoldsResponse, error) {
	return rpc.List(limit, service.MaxHolds, func(size int32, token string) (*cleanupv1.ListHoldsResponse, int, error) {
		page, err := client.ListHolds(
			cmd.Context(),
			&cleanupv1.ListHoldsRequest{PageSize: size, PageToken: token, IncludeEnded: ended},
		)
		return page, len(page.GetHolds()), err
	})
}

// newHold is what `holds create` is given.
type newHold struct {
	deliveries, lists, workflows, recipients []int64
	table, reason, expires                   string
	everything                               bool
}

func newCreateHold(server *rpc.Server, output *format.Output) *cobra.Command {
	var given newHold
	cmd := &cobra.Command{
		Use: "create --reason TEXT (--deliveries IDS | --lists IDS | --workflows IDS | --table NAME | --recipients " +
			"IDS | --everything)",
		Short: "Create a hold, and wait until it is in force",
		Example: "  cleanupd holds create --deliveries 4711,4712 --reason 'lawsuit 12/2026'\n  cleanupd holds create " +
			"--everything --reason 'audit' --expire-time 2027-01-31T00:00:00Z\n" +
			"  cleanupd holds create --table nmsbroadlogrcp --reason 'being migrated'",
		Args: flags.NoArguments,
		RunE: rpc.WithCleanup(
			server,
			func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
				hold, err := given.message()
				if err != nil {
					return err
				}
				out, err := client.CreateHold(cmd.Context(), &cleanupv1.CreateHoldRequest{Hold: hold})
				if err != nil {
					return err
				}
				if tables := out.GetHold().GetNotCovered(); len(tables) > 0 {
					fmt.Fprintln(
						cmd.ErrOrStderr(),
						"Not covered, since they reach a recipient otherwise than by iRecipientId: "+strings.Join(
							tables,
							", ",
						),
					)
				}
				return output.Print(cmd.OutOrStdout(), out, holdsTable([]*cleanupv1.Hold{out.GetHold()}))
			},
		),
	}
	f := cmd.Flags()
	f.Int64SliceVar(
		&given.deliveries,
		"deliveries",
		nil,
		"the ids of deliveries: they stay with all that belongs to them",
	)
	f.Int64SliceVar(&given.lists, "lists", nil, "the ids of lists: they stay with their members and tables")
	f.Int64SliceVar(
		&given.workflows,
		"workflows",
		nil,
		"the ids of workflows: their logs, tasks, events and work tables stay",
	)
	f.Int64SliceVar(
		&given.recipients,
		"recipients",
		nil,
		"the ids of recipients: rows that have one in iRecipientId stay",
	)
	f.StringVar(&given.table, "table", "", "the name of a table: it stays with all of its rows")
	f.BoolVar(&given.everything, "everything", false, "nothing is deleted until the hold is released")
	f.StringVar(&given.reason, "reason", "", "why, for whoever finds the hold years later (required)")
	f.StringVar(
		&given.expires,
		"expire-time",
		"",
		"when it ends by itself, as 2027-01-31T00:00:00Z; empty: when it is released",
	)
	return cmd
}

// message is the hold that is to be created.
func (n *newHold) message() (*cleanupv1.Hold, error) {
	hold := &cleanupv1.Hold{Reason: n.reason}
	kinds := 0
	for _, ids := range []struct {
		ids []int64
		of  func(rows *cleanupv1.HeldRows)
	}{
		{n.deliveries, func(rows *cleanupv1.HeldRows) { hold.What = &cleanupv1.Hold_Deliveries{Deliveries: rows} }},
		{n.lists, func(rows *cleanupv1.HeldRows) { hold.What = &cleanupv1.Hold_Lists{Lists: rows} }},
		{n.workflows, func(rows *cleanupv1.HeldRows) { hold.What = &cleanupv1.Hold_Workflows{Workflows: rows} }},
		{n.recipients, func(rows *cleanupv1.HeldRows) { hold.What = &cleanupv1.Hold_Recipients{Recipients: rows} }},
	} {
		if ids.ids != nil {
			kinds++
			ids.of(&cleanupv1.HeldRows{Ids: ids.ids})
		}
	}
	if n.table != "" {
		kinds++
		hold.What = &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: n.table}}
	}
	if n.everything {
		kinds++
		hold.What = &cleanupv1.Hold_Everything{Everything: &cleanupv1.HeldEverything{}}
	}
	switch {
	case kinds != 1:
		return nil, flags.Errorf(
			"give one of --deliveries, --lists, --workflows, --table, --recipients and --everything",
		)
	case n.reason == "":
		return nil, flags.Errorf("--reason is required: say why, for whoever finds the hold years later")
	case n.expires != "":
		at, err := time.Parse(time.RFC3339, n.expires)
		if err != nil {
			return nil, flags.Errorf("--expire-time: %q is no time such as 2027-01-31T00:00:00Z", n.expires)
		}
		hold.ExpireTime = timestamppb.New(at)
	}
	return hold, nil
}

func newReleaseHold(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:     "release HOLD_ID",
		Short:   "End a hold: the next run takes what is due",
		Example: "  cleanupd holds release 01a20609-283b-755d-90ec-99cde01f104d",
		Args:    flags.OneArgument("the id of a hold, as in cleanupd holds"),
		RunE: rpc.WithCleanup(
			server,
			func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
				out, err := client.ReleaseHold(cmd.Context(), &cleanupv1.ReleaseHoldRequest{HoldId: args[0]})
				if err != nil {
					return err
				}
				return output.Print(cmd.OutOrStdout(), out, holdsTable([]*cleanupv1.Hold{out.GetHold()}))
			},
		),
	}
}

func newExportHolds(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:     "export",
		Short:   "Print all holds, also those that have ended, one a line in JSON, the oldest first",
		Example: "  cleanupd holds export",
		Args:    flags.NoArguments,
		RunE: rpc.WithCleanup(
			server,
			func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
				out, err := holds(cmd, client, maxExportedHolds, true)
				if err != nil {
					return err
				}
				for _, h := range slices.Backward(out.GetHolds()) {
					if err := output.PrintMessage(cmd.OutOrStdout(), h); err != nil {
						return err
					}
				}
				return nil
			},
		),
	}
}

// mostExported is more holds than there are.
const maxExportedHolds = 1 << 30

func holdsTable(list []*cleanupv1.Hold) []terminal.Row {
	rows := []terminal.Row{{"HOLD", "WHAT", "CREATED", "BY", "ENDS", "REASON"}}
	for _, h := range list {
		ends := "when released"
		switch {
		case h.GetReleaseTime() != nil:
			ends = "released " + h.GetReleaseTime().AsTime().Format(time.RFC3339) + " by " + h.GetReleasedBy()
		case h.GetExpireTime() != nil:
			ends = h.GetExpireTime().AsTime().Format(time.RFC3339)
		}
		rows = append(
			rows,
			terminal.Row{
				h.GetId(),
				holdSubject(h),
				h.GetCreateTime().AsTime().Format(time.RFC3339),
				h.GetCreatedBy(),
				ends,
				h.GetReason(),
			},
		)
	}
	return rows
}

// heldShown is how many ids of a hold are shown.
const idsShown = 5

// heldWhat says what is held.
func holdSubject(h *cleanupv1.Hold) string {
	some := func(kind string, rows *cleanupv1.HeldRows) string {
		var ids []string
		for _, id := range rows.GetIds()[:min(len(rows.GetIds()), idsShown)] {
			ids = append(ids, strconv.FormatInt(id, 10))
		}
		if more := len(rows.GetIds()) - idsShown; more > 0 {
			ids = append(ids, fmt.Sprintf("and %d more", more))
		}
		return kind + " " + strings.Join(ids, ", ")
	}
	switch what := h.GetWhat().(type) {
	case *cleanupv1.Hold_Deliveries:
		return some("deliveries", what.Deliveries)
	case *cleanupv1.Hold_Lists:
		return some("lists", what.Lists)
	case *cleanupv1.Hold_Workflows:
		return some("workflows", what.Workflows)
	case *cleanupv1.Hold_Recipients:
		return some("recipients", what.Recipients)
	case *cleanupv1.Hold_Table:
		return "table " + what.Table.GetName()
	}
	return "everything"
}
