package serve

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/cleanupd/cleanupd/internal/flags"
)

func NewSettings() *cobra.Command {
	return &cobra.Command{
		Use:   "settings",
		Short: "Print all settings of serve, as a file for --config",
		Long: "Print all settings of serve with their defaults, as a file for --config. Remove the # before those that\n" +
			"you change. A flag, or a variable, has precedence over the file.",
		Example: "  cleanupd settings >cleanupd.yaml\n  cleanupd serve --config cleanupd.yaml",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := settingsFile()
			if err == nil {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
}

// settingsWidth is the width of the comments in columns.
const settingsWidth = 100

func settingsFile() (string, error) {
	var file strings.Builder
	fmt.Fprintln(&file, "# Settings of cleanupd serve. It may hold passwords: let only the service read it.")
	set := NewCommand().Flags()
	for _, group := range Settings {
		fmt.Fprintf(&file, "\n## %s\n", group.Title)
		for _, name := range group.Names() {
			if name == "config" {
				continue
			}
			f := set.Lookup(name)
			var value any = &yaml.Node{Kind: yaml.ScalarNode, Value: f.DefValue}
			switch f.DefValue {
			case "":
				value = ""
			case "[]":
				value = []string{}
			}
			setting, err := yaml.Marshal(map[string]any{name: value})
			if err != nil {
				return "", err
			}
			fmt.Fprintln(&file)
			for line := range strings.Lines(text.WrapSoft(f.Usage, settingsWidth)) {
				fmt.Fprintln(&file, strings.TrimRight("# "+line, " \n"))
			}
			fmt.Fprintf(&file, "#%s", setting)
		}
	}
	return file.String(), nil
}
