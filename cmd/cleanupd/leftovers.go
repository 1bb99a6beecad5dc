package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service"
)

func newMidSourcing() *cobra.Command {
	var server target
	cmd := &cobra.Command{
		Use:   "mid-sourcing",
		Short: "List what stays on mid-sourcing servers",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	server.flags(cmd)
	cmd.AddCommand(newLeftovers(&server))
	return cmd
}

func newLeftovers(server *target) *cobra.Command {
	var (
		account string
		limit   int32
	)
	cmd := &cobra.Command{
		Use:   "leftovers",
		Short: "List the deliveries that were deleted here and stay on mid-sourcing servers",
		Long: "List the deliveries that were deleted here alone, since no database was configured for their mid-sourcing\n" +
			"server, by the names of their accounts and their ids there. The next run deletes them there once serve has\n" +
			"--mid-sourcing ACCOUNT=URL; or hand the list to whoever runs that server.",
		Args: noArguments,
		RunE: withClient(server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
			if err := checkLimit(limit, service.MaxRemoteDeliveries); err != nil {
				return err
			}
			in := &cleanupv1.ListRemoteDeliveriesRequest{PageSize: limit}
			if cmd.Flags().Changed("account") {
				in.Account = &account
			}
			out, err := client.ListRemoteDeliveries(cmd.Context(), in)
			if err != nil {
				return err
			}
			defer tellOfMore(cmd.ErrOrStderr(), out.GetNextPageToken(), service.MaxRemoteDeliveries)
			return printLeftovers(cmd.OutOrStdout(), out.GetDeliveries())
		}),
	}
	cmd.Flags().StringVar(&account, "account", "", "only the deliveries of this account; empty: those without one (default all)")
	limitFlag(cmd.Flags(), &limit, "deliveries", service.MaxRemoteDeliveries)
	return cmd
}

func printLeftovers(w io.Writer, list []*cleanupv1.RemoteDelivery) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ACCOUNT\tID THERE\tID HERE\tDELETED HERE\tRUN\tLABEL")
	for _, d := range list {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\n", cmp.Or(d.GetAccount(), "(none)"), d.GetRemoteId(), d.GetDeliveryId(),
			d.GetLeaveTime().AsTime().Format(time.RFC3339), d.GetRunId(), d.GetLabel())
	}
	return table.Flush()
}
