package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/version"
)

func NewVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  cleanupd version",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "cleanupd %s\n", version.String())
			return err
		},
	}
}
