package forms

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
)

//go:embed receipt.html
var receiptHTML string

// receiptPage is a page for the person's file.
var receiptPage = template.Must(
	template.New("receipt").Funcs(template.FuncMap{"ids": joinOrNone, "time": receiptTime}).Parse(receiptHTML))

func receiptTime(t *timestamppb.Timestamp) string { return cmp.Or(format.Time(t), "not yet") }

func newReceipt(server *rpc.Server) *cobra.Command {
	var (
		file   string
		output format.Output
	)
	cmd := &cobra.Command{
		Use:   "receipt RECEIPT",
		Short: "Show the receipt of an erasure, or write it as a page for the person's file",
		Example: "  cleanupd userdata receipt 01a20895-0d6e-7d3c-8d7e-5a4fb3a0c111\n  cleanupd userdata receipt " +
			"01a20895-0d6e-7d3c-8d7e-5a4fb3a0c111 --html receipt.html",
		Args:              flags.OneArgument("the id of a receipt, as in cleanupd userdata receipts"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownReceipts)),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			resp, err := client.GetReceipt(cmd.Context(), &cleanupv1.GetReceiptRequest{ReceiptId: args[0]})
			if err != nil {
				return err
			}
			if file != "" {
				return writeReceiptPage(file, resp.GetReceipt())
			}
			return printReceipt(cmd.OutOrStdout(), output, resp.GetReceipt())
		}),
	}
	output.AddFlag(cmd)
	cmd.Flags().StringVar(&file, "html", "",
		"write it as an HTML page to this new file, which a browser prints or saves as PDF")
	rpc.CompleteFlag(cmd, "html", flags.CompleteFiles)
	return cmd
}

// writeReceiptPage fails if the file already exists.
func writeReceiptPage(name string, r *cleanupv1.Receipt) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the caller's file
	if err != nil {
		return err
	}
	err = receiptPage.Execute(f, r)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func printReceipt(w io.Writer, output format.Output, r *cleanupv1.Receipt) error {
	if output != format.Table {
		return output.Print(w, r, nil)
	}
	rows := []terminal.Row{
		{"RECEIPT", r.GetId()},
		{"requested by", r.GetRequestedBy()},
		{"requested at", receiptTime(r.GetCreateTime())},
		{"ended at", receiptTime(r.GetEndTime())},
		{"all erased", strconv.FormatBool(r.GetSucceeded())},
		{"process instances", joinOrNone(r.GetProcessInstanceIds())},
		{"orphan tasks", joinOrNone(r.GetTaskIds())},
		{"rows", cmp.Or(rowsOfTables(r.GetRows()), "none")},
		{"files", humanize.Comma(int64(len(r.GetFiles())))},
		{"not erased", joinOrNone(r.GetProblems())},
	}
	if v := r.GetVerification(); v != nil {
		rows = append(rows, terminal.Row{"verified at", receiptTime(v.GetVerifyTime())},
			terminal.Row{"process instances left", joinOrNone(v.GetProcessInstanceIds())},
			terminal.Row{"tasks left", joinOrNone(v.GetTaskIds())},
			terminal.Row{"possible process instances", joinOrNone(v.GetPossibleProcessInstanceIds())})
	}
	return terminal.ScreenOf(w).PrintTable(rows)
}

func newReceipts(server *rpc.Server) *cobra.Command {
	var (
		limit  int32
		output format.Output
	)
	cmd := &cobra.Command{
		Use:     "receipts",
		Short:   "List the receipts of erasures, newest first",
		Example: "  cleanupd userdata receipts\n  cleanupd userdata receipts -o json | jq '.receipts[0]'",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			fetch := func(size int32, token string) (*cleanupv1.ListReceiptsResponse, int, error) {
				req := &cleanupv1.ListReceiptsRequest{PageSize: size, PageToken: token}
				page, err := client.ListReceipts(cmd.Context(), req)
				return page, len(page.GetReceipts()), err
			}
			receipts, err := rpc.List(limit, service.MaxReceipts, fetch)
			if err != nil {
				return err
			}
			defer rpc.PrintMore(cmd.ErrOrStderr(), receipts)
			rows := []terminal.Row{{"RECEIPT", "WHEN", "WHO", "INSTANCES", "TASKS", "FILES", "SUCCEEDED"}}
			for _, r := range receipts.GetReceipts() {
				rows = append(rows,
					terminal.Row{
						r.GetId(), format.Time(r.GetCreateTime()), r.GetRequestedBy(),
						strconv.Itoa(len(r.GetProcessInstanceIds())), strconv.Itoa(len(r.GetTaskIds())),
						strconv.Itoa(len(r.GetFiles())), strconv.FormatBool(r.GetSucceeded()),
					})
			}
			return output.Print(cmd.OutOrStdout(), receipts, rows)
		}),
	}
	output.AddFlag(cmd)
	rpc.AddLimitFlag(cmd.Flags(), &limit)
	return cmd
}

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
