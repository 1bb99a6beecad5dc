package forms

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

func newVerify(server *rpc.Server) *cobra.Command {
	var (
		req       cleanupv1.VerifyErasureRequest
		variables []string
		output    format.Output
	)
	cmd := &cobra.Command{
		Use:   "verify RECEIPT [USER]",
		Short: "Search again for the data that was erased, and add the result to the receipt",
		Long: "Search again for the data that was erased, and add the result to the receipt. An erasure by a user\n" +
			"id is verified by the same user id and variables: the receipt has only a hash of it. The exit\n" +
			"status is 1 if something is found.",
		Example: "  cleanupd userdata verify 01a20895-0d6e-7d3c-8d7e-5a4fb3a0c111 bob.smith@example.com --variable " +
			"Claims/apply",
		Args:              receiptAndUser,
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownReceipts)),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) (err error) {
			req.ReceiptId = args[0]
			if len(args) > 1 {
				req.UserId = args[1]
			}
			if req.Variables, err = parseVariables(variables); err != nil {
				return err
			}
			resp, err := client.VerifyErasure(cmd.Context(), &req)
			if err != nil {
				return err
			}
			if err := printReceipt(cmd.OutOrStdout(), output, resp.GetReceipt()); err != nil {
				return err
			}
			if v := resp.GetReceipt().GetVerification(); !v.GetClean() {
				instances, tasks := len(v.GetProcessInstanceIds()), len(v.GetTaskIds())
				return fmt.Errorf("%d process instances and %d tasks are left", instances, tasks)
			}
			return nil
		}),
	}
	output.AddFlag(cmd)
	addVariablesFlag(cmd.Flags(), &variables)
	addPrincipalsFlag(cmd.Flags(), &req.PrincipalIds)
	return cmd
}

// receiptAndUser requires the id of a receipt; the user id after it is optional.
func receiptAndUser(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return flags.OneArgument("the id of a receipt, as in cleanupd userdata receipts")(cmd, args)
}
