package forms

import (
	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

func newSweep(server *rpc.Server) *cobra.Command {
	var (
		yes, dryRun bool
		output      format.Output
	)
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete the documents whose tasks and form data do not exist",
		Long: "Show what would be deleted, ask for confirmation, and delete it: the documents of the document\n" +
			"storage whose every session names a task or form data that does not exist. A document of any other\n" +
			"session is kept. A missing task may be about to be stored: a document is deleted only if another\n" +
			"sweep, not a dry run, found the same at least an hour before, and if its files are older than a\n" +
			"day. The exit status is 1 if a document could not be deleted.",
		Example: "  cleanupd userdata sweep --dry-run\n  cleanupd userdata sweep --yes",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			question := "Delete these documents, and note the ones that a later sweep may delete?"
			return eraseAfterPreview(cmd, server, client, yes, dryRun, question, func(dryRun bool) (bool, error) {
				stream, err := client.SweepDocuments(cmd.Context(), &cleanupv1.SweepDocumentsRequest{DryRun: dryRun})
				if err != nil {
					return false, err
				}
				return printErasure(cmd.OutOrStdout(), output, dryRun, stream)
			})
		}),
	}
	output.AddFlag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, show what would be erased")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
