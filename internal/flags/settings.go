package flags

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// AddSettingsFile adds --config, which sets the flags that are given neither on the command line nor by a variable.
func AddSettingsFile(f *pflag.FlagSet) {
	f.String("config", "",
		"a file of settings in YAML, whose keys are the names of the flags of serve; cleanupd settings prints one")
}

// ReadSettings sets the flags that were not given on the command line: from the environment, and then, if the set
// has --config, from that file. Its keys are flags of serve, of which a command may have only some.
func ReadSettings(set, serve *pflag.FlagSet) error {
	if err := ReadEnvironment(set); err != nil {
		return err
	}
	config := set.Lookup("config")
	if config == nil || config.Value.String() == "" {
		return nil
	}
	file := config.Value.String()
	settings, err := settingsOf(file)
	if err != nil {
		return Errorf("--config: %w", err)
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(settings); i += 2 {
		name := settings[i].Value
		at := func(format string, args ...any) {
			errs = append(errs, Errorf("--config: %s:%d: %w", file, settings[i].Line, fmt.Errorf(format, args...)))
		}
		if f := serve.Lookup(name); f == nil || !HasVariable(f) || name == "config" {
			at("there is no setting %q%s", name, Similar(name, names(serve)))
			continue
		}
		if seen[name] {
			at("%s is set twice", name)
			continue
		}
		seen[name] = true
		f := set.Lookup(name)
		if f == nil || f.Changed {
			continue
		}
		values, err := valuesOf(settings[i+1], f)
		for _, value := range values {
			if err == nil {
				err = explainValue(set.Set(name, value))
			}
		}
		if err != nil {
			at("%w", err)
		}
	}
	return errors.Join(errs...)
}

// settingsOf returns the names and the values of the settings in a file, in turn.
func settingsOf(file string) ([]*yaml.Node, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var document, another yaml.Node
	d := yaml.NewDecoder(f)
	if err := d.Decode(&document); errors.Is(err, io.EOF) { // it has only comments
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	root := document.Content[0]
	switch {
	case !errors.Is(d.Decode(&another), io.EOF):
		return nil, fmt.Errorf("%s has more than one document", file)
	case root.Tag == "!!null":
		return nil, nil
	case root.Kind != yaml.MappingNode:
		return nil, fmt.Errorf("%s:%d: it must have lines of the form NAME: VALUE", file, root.Line)
	}
	return root.Content, nil
}

// valuesOf returns one value, or those of the list that a flag that may be repeated can have.
func valuesOf(node *yaml.Node, f *pflag.Flag) (values []string, err error) {
	list := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		if !repeats(f) {
			return nil, fmt.Errorf("%s has one value, not a list", f.Name)
		}
		list = node.Content
	}
	for _, item := range list {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return nil, fmt.Errorf("%s has no value", f.Name)
		}
		values = append(values, item.Value)
	}
	return values, nil
}

func repeats(f *pflag.Flag) bool { return f.Value.Type() == "stringArray" }

func names(set *pflag.FlagSet) (list []string) {
	set.VisitAll(func(f *pflag.Flag) { list = append(list, f.Name) })
	return list
}

// Group is a theme of flags. Experts are left out of the help.
type Group struct {
	Title         string
	Help, Experts []string
}

func (g Group) Names() []string { return slices.Concat(g.Help, g.Experts) }

const groupOf = "cleanupd_group"

// Arrange shows flags in groups, and hides the experts'. It panics if a group has an unknown flag.
func Arrange(set *pflag.FlagSet, groups []Group) {
	set.SortFlags = false
	for _, group := range groups {
		for _, name := range group.Names() {
			if err := set.SetAnnotation(name, groupOf, []string{group.Title}); err != nil {
				panic(err)
			}
		}
		for _, name := range group.Experts {
			set.Lookup(name).Hidden = true
		}
	}
}

// Usages describes flags, wrapped to a width, under the titles of their groups.
func Usages(set *pflag.FlagSet, width int) string {
	var titles []string
	sets := map[string]*pflag.FlagSet{}
	set.VisitAll(func(f *pflag.Flag) {
		title := "Flags"
		if of := f.Annotations[groupOf]; of != nil {
			title = of[0]
		}
		if sets[title] == nil {
			sets[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			sets[title].SortFlags = set.SortFlags
			titles = append(titles, title)
		}
		sets[title].AddFlag(f)
	})
	var text strings.Builder
	for _, title := range titles {
		if usages := sets[title].FlagUsagesWrapped(width); usages != "" {
			fmt.Fprintf(&text, "%s:\n%s\n", title, usages)
		}
	}
	return strings.TrimRight(text.String(), "\n ")
}
