package cli

import (
	"cmp"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
)

func NewMidSourcing() *cobra.Command {
	var server rpc.Server
	cmd := &cobra.Command{
		Use:     "mid-sourcing",
		Short:   "List the deliveries of Adobe Campaign that remain on mid-sourcing servers",
		Example: "  cleanupd mid-sourcing leftovers",
		Args:    flags.OnlyCommands,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	server.AddFlags(cmd)
	cmd.AddCommand(newLeftovers(&server))
	return cmd
}

func newLeftovers(server *rpc.Server) *cobra.Command {
	var (
		output  format.Output
		account string
		limit   int32
	)
	cmd := &cobra.Command{
		Use:   "leftovers",
		Short: "List the deliveries that were deleted here and remain on mid-sourcing servers",
		Long: "List the deliveries that were deleted only here, since no database was configured for their mid-sourcing\n" +
			"server, by the names of their accounts and their ids there. The next run deletes them there once serve " +
			"has\n--mid-sourcing ACCOUNT=URL; or give the list to the administrator of that server.",
		Example: "  cleanupd mid-sourcing leftovers\n  cleanupd mid-sourcing leftovers --account mid1 --limit 100000 " +
			"-o json | jq -r '.deliveries[].remoteId'",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			req := &cleanupv1.ListRemoteDeliveriesRequest{}
			if cmd.Flags().Changed("account") {
				req.Account = &account
			}
			fetch := func(size int32, token string) (*cleanupv1.ListRemoteDeliveriesResponse, int, error) {
				req.PageSize, req.PageToken = size, token
				page, err := client.ListRemoteDeliveries(cmd.Context(), req)
				return page, len(page.GetDeliveries()), err
			}
			deliveries, err := rpc.List(limit, service.MaxRemoteDeliveries, fetch)
			if err != nil {
				return err
			}
			defer rpc.PrintMore(cmd.ErrOrStderr(), deliveries)
			return output.Print(cmd.OutOrStdout(), deliveries, leftoversTable(deliveries.GetDeliveries()))
		}),
	}
	output.AddFlag(cmd)
	cmd.Flags().StringVar(&account, "account", "",
		"only the deliveries of this account; empty: those without one (default all)")
	rpc.AddLimitFlag(cmd.Flags(), &limit)
	return cmd
}

func leftoversTable(deliveries []*cleanupv1.RemoteDelivery) []terminal.Row {
	rows := []terminal.Row{{"ACCOUNT", "ID THERE", "ID HERE", "DELETED HERE", "RUN", "LABEL"}}
	for _, d := range deliveries {
		rows = append(rows,
			terminal.Row{
				cmp.Or(d.GetAccount(), "(none)"), strconv.FormatInt(d.GetRemoteId(), 10),
				strconv.FormatInt(d.GetDeliveryId(), 10), format.Time(d.GetRetainTime()), d.GetRunId(), d.GetLabel(),
			})
	}
	return rows
}
