package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/version"
)

func NewVersion() *cobra.Command {
	var output format.Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  cleanupd version\n  cleanupd version -o json | jq -r .version",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != format.Table {
				answer := &structpb.Struct{Fields: map[string]*structpb.Value{
					"version": structpb.NewStringValue(version.String()),
				}}
				return output.Print(cmd.OutOrStdout(), answer, nil)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "cleanupd %s\n", version.String())
			return err
		},
	}
	output.AddFlag(cmd)
	return cmd
}
