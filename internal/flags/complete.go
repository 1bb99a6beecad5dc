package flags

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func CompleteFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// fileSuffixes end the names of flags whose values are files.
var fileSuffixes = []string{"-file", "-ca", "-cert", "-key", "-crl"}

func CompleteFileFlags(cmd *cobra.Command) {
	complete := func(f *pflag.Flag) {
		// registering fails only for a flag that has a completion already
		if strings.HasSuffix(f.Name, "-dir") {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
		}
		for _, suffix := range fileSuffixes {
			if strings.HasSuffix(f.Name, suffix) {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, CompleteFiles)
			}
		}
	}
	cmd.Flags().VisitAll(complete)
	cmd.PersistentFlags().VisitAll(complete)
	for _, sub := range cmd.Commands() {
		CompleteFileFlags(sub)
	}
}
