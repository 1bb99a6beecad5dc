package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func OnlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UnknownCommand(cmd, args[0])
	}
	return nil
}

func UnknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(similar, " or "))
	}
	return Errorf("%s has no command %q%s; see %[1]s --help", cmd.CommandPath(), name, hint)
}

func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Errorf("%s takes no argument, not %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// OneArgument requires exactly one argument, which what describes in the error.
func OneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Errorf("%s takes %s; see %s --help", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}
