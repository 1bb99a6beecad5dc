package cli

import (
	_ "embed"
	"fmt"

	"github.com/spf13/cobra"

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
		Short: "Search again for what an erasure was about, and attach the result to its receipt",
		Long: "Search again for what an erasure was about, and attach the result to its receipt. An erasure by a " +
			"user id is verified by the same\n" +
			"user id and variables: the receipt holds only a hash of it. The exit status is 1 if something is left.",
		Example: "  cleanupd userdata verify 01a20895-0d6e-7d3c-8d7e-5a4fb3a0c111 bob.smith@example.com --variable " +
			"Claims/apply",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return flags.OneArgument("the id of a receipt, as in cleanupd userdata receipts")(cmd, args)
		},
		RunE: rpc.WithUserData(
			server,
			func(cmd *cobra.Command, client cleanupv1.UserDataServiceClient, args []string) (err error) {
				req.ReceiptId = args[0]
				if len(args) > 1 {
					req.UserId = args[1]
				}
				if req.Variables, err = parseVariables(variables); err != nil {
					return err
				}
				answer, err := client.VerifyErasure(cmd.Context(), &req)
				if err != nil {
					return err
				}
				if err := printReceipt(cmd.OutOrStdout(), output, answer.GetReceipt()); err != nil {
					return err
				}
				if v := answer.GetReceipt().GetVerification(); !v.GetClean() {
					return fmt.Errorf(
						"%d process instances and %d tasks are left",
						len(v.GetProcessInstanceIds()),
						len(v.GetTaskIds()),
					)
				}
				return nil
			},
		),
	}
	output.AddFlag(cmd)
	variablesFlag(cmd.Flags(), &variables)
	cmd.Flags().
		StringArrayVar(&req.PrincipalIds, "principal", nil, "which principal of the user id is meant; may be repeated")
	return cmd
}
